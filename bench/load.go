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

package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load is what callers ask for.
type load struct {
	path    string // default: chat completions
	body    string
	stream  bool
	pace    time.Duration // between the chunks of a stream
	callers int

	events   int           // contents of a stream; 0: the usual stream
	comments time.Duration // between the comments that are all that comes after them; 0: none, the stream ends
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2048, DisableCompression: true}}

// request is about what the OpenAI SDK sends.
func (l *load) request(ctx context.Context, site string) *http.Request {
	path, body := l.path, l.body
	if path == "" {
		path = "/v1/chat/completions"
	}
	if l.stream {
		body = strings.TrimSuffix(body, "}") + `,"stream":true}`
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, site+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the URL is ours
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity", "Authorization": "Bearer caller",
		"User-Agent": "OpenAI/Python 2.0.0", "X-Stainless-Lang": "python", "X-Stainless-Package-Version": "2.0.0", "X-Stainless-Os": "Linux",
		"X-Stainless-Arch": "x64", "X-Stainless-Runtime": "CPython", "X-Stainless-Runtime-Version": "3.13.1", "X-Stainless-Retry-Count": "0",
		"X-Session": "session-1",
	} {
		r.Header.Set(name, value)
	}
	if l.stream {
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set(paceHeader, l.pace.String())
		if l.events > 0 {
			r.Header.Set(eventsHeader, strconv.Itoa(l.events))
			r.Header.Set(commentsHeader, l.comments.String())
		}
	}
	return r
}

// want is the length of the answer.
func (l *load) want() (n int64) {
	switch {
	case !l.stream:
		return int64(len(chatAnswer))
	case l.path == messagesPath:
		return int64(len(strings.Join(messagesStream, "")))
	case l.events > 0:
		return int64(len(strings.Join(chatStream, "")) + (l.events-chunks)*len(chatStream[1]))
	default:
		return int64(len(strings.Join(chatStream, "")))
	}
}

// run lets the callers ask, each again as soon as it is answered, until the time is over. An answer that is not whole
// has failed.
func (l *load) run(site string, d time.Duration) (done, failed int64) {
	var ok, bad atomic.Int64
	var wg sync.WaitGroup
	end, want := time.Now().Add(d), l.want()
	for range l.callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				resp, err := client.Do(l.request(context.Background(), site))
				if err != nil {
					bad.Add(1)
					continue
				}
				n, err := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || n != want {
					bad.Add(1)
					continue
				}
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	return ok.Load(), bad.Load()
}

// meter counts what comes.
type meter struct{ bytes, reads atomic.Int64 }

func (m *meter) Write(b []byte) (int, error) {
	m.bytes.Add(int64(len(b)))
	m.reads.Add(1)
	return len(b), nil
}

// open opens n streams, waits for the first content of each, and leaves them open until stop, which tells how many failed:
// a stream that ends before has failed, too. What comes is counted.
func (l *load) open(site string, n int, came *meter) (stop func() (failed int64)) {
	ctx, cancel := context.WithCancel(context.Background())
	var bad atomic.Int64
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for range n {
		ended.Go(func() {
			resp, err := client.Do(l.request(ctx, site))
			if err != nil || resp.StatusCode != http.StatusOK {
				bad.Add(1)
				begun.Done()
				return
			}
			defer resp.Body.Close()
			_, err = io.ReadFull(resp.Body, make([]byte, 256))
			begun.Done()
			if err == nil {
				_, _ = io.Copy(came, resp.Body)
			}
			if err != nil || ctx.Err() == nil {
				bad.Add(1)
			}
		})
	}
	begun.Wait()
	return func() int64 {
		cancel()
		ended.Wait()
		client.CloseIdleConnections()
		return bad.Load()
	}
}
