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
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// readToTheEnd makes connections tell of a failed write only when there is nothing more to read. An upstream that
// refuses a large request may answer and hang up before it has read it; the transport would drop the answer for the
// failed write, whichever it notices first (https://go.dev/issue/11745).
func readToTheEnd(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, ended: make(chan struct{})}, nil
	}
}

type conn struct {
	net.Conn
	once  sync.Once
	ended chan struct{} // closed when nothing more can be read
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		select {
		case <-c.ended:
		case <-time.After(lastWordsTime): // HTTP/2 writes under a lock that its reader may need
		}
	}
	return n, err
}

// lastWordsTime is how long the answer of a peer that has gone may take to be read.
const lastWordsTime = time.Second

// CloseWrite is how net/http ends one direction of a tunnel.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *conn) end() { c.once.Do(func() { close(c.ended) }) }
