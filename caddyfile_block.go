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
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// keyword is one word of a block, and what to do with the rest of its line and with a block that follows it.
type keyword struct {
	name  string
	usage string // what follows: <one>, <one or more...>, [<may be missing>]; without any, one value
	many  bool   // may be given more than once

	set       func(args []string) error          // its errors get the line from the caller
	block     func(d *caddyfile.Dispenser) error // nil: takes none; its errors have their lines
	misplaced string                             // not empty: why it may not stand here
}

// readBlock reads a block whose lines begin with one of words. The check runs after each line, so that what it finds
// wrong is reported with that line.
func readBlock(d *caddyfile.Dispenser, where string, words []keyword, check func() error) error {
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		line := d.Token()
		i := slices.IndexFunc(words, func(w keyword) bool { return w.name == line.Text })
		if i < 0 {
			return d.Errf("%s: unknown word %q; it may be %s", where, line.Text, listWords(namesOf(words)))
		}
		w := words[i]
		if w.misplaced != "" {
			return d.Errf("%s: %s cannot stand here: %s", where, w.name, w.misplaced)
		}
		if seen[w.name] && !w.many {
			return d.Errf("%s: %s already specified", where, w.name)
		}
		seen[w.name] = true
		if err := w.read(d, where); err != nil {
			return err
		}
		if err := check(); err != nil {
			return errAt(line, err)
		}
	}
	return nil
}

// read reads the rest of the word's line, and its block.
func (w keyword) read(d *caddyfile.Dispenser, where string) error {
	args := d.RemainingArgs()
	if least, most := arity(w.usage); len(args) < least || len(args) > most {
		usage := w.usage
		if w.block != nil {
			usage += " { ... }"
		}
		return d.Errf("%s: wrong number of values for %s; write: %s %s", where, w.name, w.name, strings.TrimSpace(usage))
	}
	if w.set != nil {
		if err := w.set(args); err != nil {
			return d.WrapErr(fmt.Errorf("%s: %s: %w", where, w.name, err))
		}
	}
	if w.block != nil {
		return w.block(d)
	}
	if d.NextBlock(d.Nesting()) {
		return d.Errf("%s: %s takes no block", where, w.name)
	}
	return nil
}

// arity tells from a usage how many values it wants: one for each <value> and for each word that stands for itself.
func arity(usage string) (least, most int) {
	optional, inside, word := false, false, false
	for _, r := range usage {
		begins := false
		switch {
		case inside:
			inside = r != '>'
		case r == '<':
			begins, inside = true, true
		case r == '[' || r == ']':
			optional = r == '['
		case unicode.IsLetter(r) && !word:
			begins = true
		}
		word = !inside && unicode.IsLetter(r)
		if begins {
			most++
			if !optional {
				least++
			}
		}
	}
	if strings.Contains(usage, "...") {
		most = math.MaxInt
	}
	return least, most
}

// namesOf lists the words that may stand in a block.
func namesOf(words []keyword) []string {
	var names []string
	for _, w := range words {
		if w.misplaced == "" {
			names = append(names, w.name)
		}
	}
	return names
}

// errAt gives err the place of a token that was read before.
func errAt(t caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{t})
	d.Next()
	return d.WrapErr(err)
}

// The setters of values follow. Each returns a function that takes as many of a line's values as it has use for.

func setText(to *string) func([]string) error {
	return func(args []string) error {
		*to = args[0]
		return nil
	}
}

func setTexts[T ~string](to *[]T) func([]string) error {
	return func(args []string) error {
		for _, arg := range args {
			*to = append(*to, T(arg))
		}
		return nil
	}
}

// setDurations reads as many durations as there are values for. Zero would mean the default in JSON, so it is refused.
func setDurations(to ...*caddy.Duration) func([]string) error {
	return func(args []string) error {
		for i := range min(len(args), len(to)) {
			value, err := caddy.ParseDuration(args[i])
			if err != nil {
				return fmt.Errorf("%q is not a duration such as 500ms, 30s or 5m", args[i])
			}
			if value <= 0 {
				return fmt.Errorf("%s must be above zero", args[i])
			}
			*to[i] = caddy.Duration(value)
		}
		return nil
	}
}

func setSwitch(to **bool) func([]string) error {
	return func(args []string) error {
		on := args[0] == "on"
		if !on && args[0] != "off" {
			return fmt.Errorf("%q is neither on nor off", args[0])
		}
		*to = &on
		return nil
	}
}

func setNumber(to *int, least int) func([]string) error {
	return func(args []string) error {
		value, err := strconv.Atoi(args[0])
		if err != nil || value < least {
			return fmt.Errorf("%q is not a whole number of %d or more", args[0], least)
		}
		*to = value
		return nil
	}
}

// setShare reads a percentage above zero, and setRate a number above zero: zero would mean the default in JSON.
func setShare(to *float64) func([]string) error {
	return func(args []string) error {
		value, err := strconv.ParseFloat(strings.TrimSuffix(args[0], "%"), 64)
		if err != nil || !(value > 0 && value <= 100) {
			return fmt.Errorf("%q is not a percentage above 0%% and up to 100%%", args[0])
		}
		*to = value
		return nil
	}
}

func setRate(to *float64) func([]string) error {
	return func(args []string) error {
		value, err := strconv.ParseFloat(args[0], 64)
		if err != nil || !(value > 0) || math.IsInf(value, 0) {
			return fmt.Errorf("%q is not a number above 0", args[0])
		}
		*to = value
		return nil
	}
}

func setPercent(to **float64) func([]string) error {
	return func(args []string) error {
		value, err := strconv.ParseFloat(strings.TrimSuffix(args[0], "%"), 64)
		if err != nil || !(value >= 0 && value <= 100) { // so that NaN is refused too
			return fmt.Errorf("%q is not a percentage from 0%% to 100%%", args[0])
		}
		*to = &value
		return nil
	}
}

func setSize(to *int64) func([]string) error {
	return func(args []string) error {
		value, err := humanize.ParseBytes(args[0])
		if err != nil || value == 0 || value > math.MaxInt64 {
			return fmt.Errorf("%q is not a size such as 512KiB or 32MiB", args[0])
		}
		*to = int64(value)
		return nil
	}
}
