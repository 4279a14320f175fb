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
	"time"
)

// clock is where the time comes from and where it is waited: the machine's, or that of a simulation.
type clock interface {
	Now() time.Time

	// AfterFunc calls f once d is over, as [time.AfterFunc] does.
	AfterFunc(d time.Duration, f func()) timer

	// Wait waits until d is over, ready is closed, or ctx ends. It reports whether ready is closed.
	Wait(ctx context.Context, d time.Duration, ready <-chan struct{}) bool
}

// timer is a [time.Timer] as far as it is used.
type timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// machineClock is the clock of everything but simulations.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) AfterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }

func (machineClock) Wait(ctx context.Context, d time.Duration, ready <-chan struct{}) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-ready:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	return false
}
