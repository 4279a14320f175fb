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

// Package mersenne is the Mersenne Twister (MT19937) as Python's random module seeds and reads it, so that figures
// worked out there can be worked out again here. It is no source of secrets.
package mersenne

import (
	"math"
	"math/bits"
)

// The parameters of MT19937 (Matsumoto and Nishimura 1998).
const (
	n         = 624
	m         = 397
	matrix    = 0x9908b0df
	upperMask = 0x80000000
	lowerMask = 0x7fffffff
)

// Source is a generator. It is not safe for concurrent use.
type Source struct {
	state [n]uint32
	next  int
}

// New seeds a generator as random.Random(seed) does: with the seed's 32-bit digits, the least first.
func New(seed uint64) *Source {
	key := []uint32{uint32(seed)}
	if high := uint32(seed >> 32); high > 0 {
		key = append(key, high)
	}
	return byArray(key)
}

// byArray is init_by_array of the authors' mt19937ar.c.
func byArray(key []uint32) *Source {
	s := new(Source)
	s.state[0] = 19650218
	for i := 1; i < n; i++ {
		s.state[i] = 1812433253*(s.state[i-1]^s.state[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	step := func() {
		if i++; i >= n {
			s.state[0], i = s.state[n-1], 1
		}
	}
	for range max(n, len(key)) {
		s.state[i] = (s.state[i] ^ (s.state[i-1]^s.state[i-1]>>30)*1664525) + key[j] + uint32(j)
		step()
		if j++; j >= len(key) {
			j = 0
		}
	}
	for range n - 1 {
		s.state[i] = (s.state[i] ^ (s.state[i-1]^s.state[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	s.state[0] = upperMask
	s.next = n
	return s
}

// twist makes the next n numbers.
func (s *Source) twist() {
	for i := range n {
		y := s.state[i]&upperMask | s.state[(i+1)%n]&lowerMask
		s.state[i] = s.state[(i+m)%n] ^ y>>1 ^ y&1*matrix
	}
	s.next = 0
}

// Uint32 returns 32 random bits.
func (s *Source) Uint32() uint32 {
	if s.next >= n {
		s.twist()
	}
	y := s.state[s.next]
	s.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// Float64 returns a number from 0 to below 1, of 53 random bits, as Python's random() does.
func (s *Source) Float64() float64 {
	a, b := s.Uint32()>>5, s.Uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

// Range returns a number from low to below high, as Python's randrange(low, high) does for spans of up to 31 bits. It
// panics if there is none.
func (s *Source) Range(low, high int) int {
	span := high - low
	if span <= 0 || span > math.MaxInt32 {
		panic("mersenne: no such range")
	}
	unused := 32 - bits.Len(uint(span))
	for {
		if r := int(s.Uint32() >> unused); r < span {
			return low + r
		}
	}
}
