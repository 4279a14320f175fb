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
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// maxEvent is the largest event of a stream that is looked at whole; of a larger one the rest goes to the caller
// as it comes.
const maxEvent = 8 << 20

// Errors that end a relay.
var (
	errCallerLeft = errors.New("the caller has left")
	errNoEnding   = errors.New("the stream ended without its ending")
	errEvent      = errors.New("the stream had an error event")
)

// relay hands on what follows the commit. Events leave when they are complete: half of one is of no use to the caller,
// and an error must be known as one before it leaves.
type relay struct {
	x        *exchange
	w        http.ResponseWriter
	flusher  *http.ResponseController
	dialect  dialect.Dialect
	judged   bool // the path generates: its streams have endings and errors
	counted  bool // what it says of tokens counts
	finished bool // the last that went to the caller was a finish reason: the answer is evidently complete
	blind    bool // an event too large to be looked into went by: the ending may have been in it
	failing  []byte
	usage    dialect.Usage
	bytes    int // that have gone to the caller
	sent     int // events among them

	idleContent time.Duration // the longest time between two contents; 0: none
}

// stream relays an event stream, beginning with what is held, to its terminal marker or its end. With errEvent,
// failing holds the error event's bytes, which have not been written.
func (r *relay) stream(p *policy) error {
	buf := r.x.held
	r.awaitContent()
	var over error // why the upstream's bytes have ended
	for fresh := buf.data; ; {
		if r.x.framing.mayEnd(fresh) {
			n := r.x.framing.last(buf.data)
			done, err := r.events(buf.data[:n])
			if err != nil {
				return err
			}
			if done {
				r.drain()
				return nil
			}
			buf.data = buf.data[:copy(buf.data, buf.data[n:])]
		}
		if len(buf.data) > maxEvent && !r.x.framing.tail { // the rest of it cannot be told from an event
			r.x.stream = false
			return r.plain(p)
		}
		if len(buf.data) > maxEvent { // too large to be an error or an ending
			if err := r.write(buf.data); err != nil {
				return err
			}
			r.blind = true // nor can the rest be told from one
			buf.data = buf.data[:0]
		}
		switch {
		case over != nil:
			return r.end(over)
		case r.x.whole:
			return r.end(io.EOF)
		}
		if r.finished { // not every stream has a marker, and not every upstream sends it
			grace := markerGrace
			if r.dialect == dialect.Gemini {
				grace = finishGrace
			}
			r.x.content = span{limitContent, grace, r.x.clock.Now().Add(grace)}
		}
		n, err := r.x.read(buf.room(readSize), p, time.Time{})
		r.x.dog.off() // the caller may take its time
		buf.data = buf.data[:len(buf.data)+n]
		fresh = buf.data[len(buf.data)-n:]
		over = r.x.cause(err)
	}
}

// awaitContent gives the next content its time, if that is limited.
func (r *relay) awaitContent() {
	r.x.content = span{}
	if r.idleContent > 0 && r.judged {
		r.x.content = span{limitContent, r.idleContent, r.x.clock.Now().Add(r.idleContent)}
	}
}

// events writes whole events. It looks into them only where a cheap search says that it must, or for content: where
// the time between contents is limited, and after a finish reason, which then was that of one choice among several.
func (r *relay) events(b []byte) (done bool, err error) {
	if !r.judged || r.idleContent == 0 && !r.finished && !r.x.framing.notable(r.dialect, b) {
		return false, r.write(b)
	}
	for at := 0; at < len(b); {
		size := r.x.framing.next(b[at:])
		if size == 0 {
			size = len(b) - at
		}
		_, signal := r.x.framing.read(r.dialect, b[at:at+size])
		if signal&dialect.Failed != 0 {
			r.failing = b[at : at+size]
			if err := r.write(b[:at]); err != nil {
				return true, err
			}
			return true, errEvent
		}
		if signal&dialect.Content != 0 {
			r.awaitContent()
			r.finished = false
		}
		at += size
		r.finished = r.finished || signal&dialect.Finished != 0
		if signal&dialect.Terminal != 0 {
			blank := len(b[at:]) - len(bytes.TrimLeft(b[at:], "\r\n"))
			return true, r.write(b[:at+blank])
		}
	}
	return false, r.write(b)
}

// How long something may still follow a finish reason. A marker, or another choice's content, may take its time; where
// there is no marker a finish reason is the ending.
const (
	finishGrace = 2 * time.Second
	markerGrace = 10 * time.Second
)

// drainTime is how long the end of the transfer may take after the end of what it carried.
const drainTime = 100 * time.Millisecond

// drain reads what little follows a stream's ending, so that the connection lives on. Only white space is handed on.
func (r *relay) drain() {
	r.x.dog.until(limitIdle, drainTime, r.x.clock.Now().Add(drainTime), time.Time{})
	var rest [512]byte
	for range 8 {
		n, err := r.x.response.Body.Read(rest[:])
		if len(bytes.TrimSpace(rest[:n])) == 0 && r.write(rest[:n]) != nil || err != nil {
			return
		}
	}
}

// end is what the end of the upstream's bytes means.
func (r *relay) end(err error) error {
	if tail := r.x.held.data; len(tail) > 0 && err == io.EOF && r.x.framing.tail {
		if done, err := r.lastEvent(tail); done || err != nil {
			return err
		}
	}
	switch {
	case r.finished:
		return nil
	case err != io.EOF:
		return err
	case r.judged && !r.blind:
		return errNoEnding
	}
	return nil
}

// evidence is what an answer brought that failed after its first content.
func (r *relay) evidence(in *inbound, err error, now time.Time) Evidence {
	e := r.x.evidence(in, now)
	var limit *limitError
	switch {
	case errors.As(err, &limit):
		return Evidence{Err: limit, Now: now}
	case errors.Is(err, errEvent):
		e.Found = FoundError
		e.Body, _ = r.x.framing.read(r.dialect, r.failing)
	case errors.Is(err, errNoEnding):
		e.Found = FoundCut
	default:
		e.Err, e.Found = err, FoundCut
	}
	return e
}

// lastEvent writes an event that the stream ended without a blank line after. Half of one is dropped: the error event
// that must follow would be taken for its rest.
func (r *relay) lastEvent(b []byte) (done bool, err error) {
	_, signal := r.x.framing.read(r.dialect, b)
	switch {
	case r.judged && signal&dialect.Failed != 0:
		r.failing = append(b, blankLine...)
		return true, errEvent
	case !r.judged || r.finished || r.blind || signal&(dialect.Finished|dialect.Terminal) != 0:
		return r.events(b)
	case signal == 0:
		return false, nil
	}
	return false, r.write(append(b, blankLine...)) // something will follow it
}

// What ends an event, in nearly all streams: near enough to count them for a log line.
var blankLine, blankCRLF = []byte("\n\n"), []byte("\n\r\n")

// write writes and flushes: whatever is complete leaves at once.
func (r *relay) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if r.counted && dialect.MayHaveUsage(r.dialect, b) {
		r.lookForUsage(b)
	}
	b = r.x.visit.secret.scrub(b)
	r.bytes += len(b)
	r.sent += bytes.Count(b, blankLine) + bytes.Count(b, blankCRLF)
	if _, err := r.w.Write(b); err != nil {
		return errCallerLeft
	}
	if err := r.flusher.Flush(); err != nil {
		return errCallerLeft
	}
	return nil
}

// lookForUsage looks into whole events.
func (r *relay) lookForUsage(b []byte) {
	for len(b) > 0 {
		size := r.x.framing.next(b)
		if size == 0 {
			size = len(b) // the last, without a blank line after it
		}
		r.usage.Look(r.dialect, r.x.framing.data(b[:size]))
		b = b[size:]
	}
}

// plain relays the rest of an answer that was too large to be held, as it comes.
func (r *relay) plain(p *policy) error {
	buf := r.x.held
	var over error
	var tail []byte // of JSON, which may tell of its usage there
	for {
		if len(buf.data) > 0 {
			r.bytes += len(buf.data)
			if r.counted {
				tail = lastOf(tail, buf.data)
			}
			if _, err := r.w.Write(r.x.visit.secret.mask(buf.data)); err != nil {
				return errCallerLeft
			}
			if r.x.response.ContentLength < 0 { // it may be long in coming, such as speech
				if err := r.flusher.Flush(); err != nil {
					return errCallerLeft
				}
			}
		}
		switch {
		case r.x.whole || over == io.EOF:
			r.usage.LookAtEnd(r.dialect, tail)
			return nil
		case over != nil:
			return over
		}
		buf.data = buf.data[:0]
		n, err := r.x.read(buf.room(copySize)[:copySize], p, time.Time{})
		r.x.dog.off()
		buf.data = buf.data[:n]
		over = r.x.cause(err)
	}
}

// lastOf returns the last bytes of what came so far, which may tell of its usage.
func lastOf(tail, fresh []byte) []byte {
	tail = append(tail, fresh[max(0, len(fresh)-dialect.MaxTail):]...)
	return tail[:copy(tail, tail[max(0, len(tail)-dialect.MaxTail):])]
}

// copySize is how much of a large answer is read at once.
const copySize = 32 << 10
