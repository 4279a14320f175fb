// Copyright 2026 The llm_failover Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package llmfailover

import (
	"sync"
	"sync/atomic"
)

// buffer holds bytes of a request or an answer and is used again once nobody holds it any more. A request's body is
// held by the handler and by each attempt until the transport closes it: a transport may still read a body after the
// answer has come, and memory given away then would send one caller's bytes with another's request.
type buffer struct {
	data []byte
	refs atomic.Int32
}

// buffers holds free ones by size class: 4 KiB, doubling, up to 4 MiB. Larger ones are left to the collector.
var buffers [11]sync.Pool

const smallestBuffer = 4 << 10

// sizeClass is the class whose buffers hold n bytes; it may be beyond the last.
func sizeClass(n int64) int {
	class := 0
	for size := int64(smallestBuffer); size < n; size *= 2 {
		class++
	}
	return class
}

// newBuffer returns an empty buffer with room for size bytes, held once.
func newBuffer(size int64) *buffer {
	class := sizeClass(size)
	if class < len(buffers) {
		if b, ok := buffers[class].Get().(*buffer); ok {
			b.refs.Store(1)
			return b
		}
		size = smallestBuffer << class
	}
	b := &buffer{data: make([]byte, 0, size)}
	b.refs.Store(1)
	return b
}

func (b *buffer) retain() { b.refs.Add(1) }

func (b *buffer) release() {
	if b == nil || b.refs.Add(-1) > 0 {
		return
	}
	// One that grew belongs to the largest class that it can serve.
	class := sizeClass(int64(cap(b.data))/2 + 1)
	if class < len(buffers) && cap(b.data) >= smallestBuffer<<class {
		b.data = b.data[:0]
		buffers[class].Put(b)
	}
}

// room makes sure that at least n more bytes fit, and returns the free part.
func (b *buffer) room(n int) []byte {
	if cap(b.data)-len(b.data) < n {
		grown := make([]byte, len(b.data), max(2*cap(b.data), len(b.data)+n))
		copy(grown, b.data)
		b.data = grown
	}
	return b.data[len(b.data):cap(b.data)]
}
