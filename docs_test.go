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
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// docFiles are the documents whose words are held to the code.
var docFiles = []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md"}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// snippet is one fenced block of a document, and the line it begins at.
type snippet struct {
	line     int
	language string
	text     string
}

func snippetsOf(t *testing.T, doc string) []snippet {
	t.Helper()
	var snippets []snippet
	var open *snippet
	for i, line := range strings.Split(doc, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &snippet{line: i + 1, language: language}
		case fence:
			snippets = append(snippets, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("the block at line %d has no end", open.line)
	}
	return snippets
}

// wholeFile makes a Caddyfile of a snippet, which may also be directives of a site or lines of this directive.
func wholeFile(text string) string {
	first := ""
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			first = words[0]
			break
		}
	}
	h, p := new(Handler), new(Provider)
	inside := namesOf(append(append(h.words(), h.providerWord()), p.words()...))
	switch {
	case slices.Contains(inside, first):
		base := "https://llm.example"
		if first == "provider" {
			base = ""
		} else if !strings.Contains(text, "keys {") {
			text += "keys {\nk1 {env.K1}\n}\n"
		}
		return fmt.Sprintf(":8080 {\nllm_failover %s {\n%s}\n}\n", base, text)
	case slices.Contains([]string{"llm_failover", "log", "log_append", "header", "handle", "route", "request_body"}, first):
		return fmt.Sprintf(":8080 {\n%s}\n", text)
	}
	return text
}

// TestDocsCaddyfiles adapts each Caddyfile that the documents show.
func TestDocsCaddyfiles(t *testing.T) {
	found := 0
	for _, file := range docFiles {
		for _, s := range snippetsOf(t, readDoc(t, file)) {
			if s.language != "caddyfile" {
				continue
			}
			found++
			t.Run(fmt.Sprintf("%s:%d", file, s.line), func(t *testing.T) {
				if _, err := adapt(t, wholeFile(s.text)); err != nil {
					t.Errorf("%v in:\n%s", err, s.text)
				}
			})
		}
	}
	if found == 0 {
		t.Error("no caddyfile block was found")
	}
}

// TestDocsAreComplete looks for each word that a config may hold, a caller may see or an operator may read.
func TestDocsAreComplete(t *testing.T) {
	readme := readDoc(t, "README.md")

	// The reference of the grammar has a line for each word.
	var grammar string
	for _, s := range snippetsOf(t, readme) {
		if strings.HasPrefix(s.text, "llm_failover [<matcher>]") {
			grammar = s.text
		}
	}
	h, p := new(Handler), new(Provider)
	h.Retry, h.Circuit, h.Halt, h.Timeouts, h.Limits = new(Retry), new(Circuit), new(Halt), new(Timeouts), new(Limits)
	for _, words := range [][]keyword{
		h.words(), {h.providerWord()}, p.words(), new(Key).words(),
		h.Retry.words(), h.Circuit.words(), h.Halt.words(), h.Timeouts.words(), h.Limits.words(),
	} {
		for _, w := range words {
			if !regexp.MustCompile(`(?m)^\t*` + w.name + `\s`).MatchString(grammar) {
				t.Errorf("the grammar lacks %s", w.name)
			}
			if !strings.Contains(readme, "`"+w.name) {
				t.Errorf("README.md does not explain %s", w.name)
			}
		}
	}

	for what, words := range map[string][]string{
		"class":   texts(Classes),
		"vendor":  Vendors,
		"dialect": texts(dialect.All),
		"policy":  selectPolicies,
		"scheme":  authSchemes,
		"mode":    halfOpenModes,
		"code": {
			codeAllHalted, codeAllOpen, codeAllCooling, codeCredentials, codeUnreachable, codeTimeout, codeDeadline, codeExhausted,
			codeQueueFull, codeModelNotServed, codeInvalidRequest, codeFailedMidStream,
		},
		"placeholder": {
			"{http.llm_failover.pool}", "{http.llm_failover.provider}", "{http.llm_failover.key}", "{http.llm_failover.attempts}",
			"{http.llm_failover.class}", "{http.llm_failover.model}",
		},
	} {
		for _, word := range words {
			if !strings.Contains(readme, "`"+word) {
				t.Errorf("README.md lacks the %s %s", what, word)
			}
		}
	}
}

func texts[T ~string](words []T) []string {
	var all []string
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

// TestDocsLinks follows the links between the project's own files and headings, and the names of files in backquotes.
func TestDocsLinks(t *testing.T) {
	for _, file := range docFiles {
		doc := readDoc(t, file)
		anchors := make(map[string]bool)
		for line := range strings.Lines(doc) {
			if title := strings.TrimLeft(line, "#"); title != line {
				anchor := strings.Map(func(r rune) rune {
					switch {
					case r == ' ':
						return '-'
					case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
						return r
					}
					return -1
				}, strings.ToLower(strings.TrimSpace(title)))
				anchors[anchor] = true
			}
		}
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(doc, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			switch {
			case strings.Contains(target, "://"):
			case target != "":
				if _, err := os.Stat(path.Clean(target)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			case !anchors[anchor]:
				t.Errorf("%s: there is no heading for #%s", file, anchor)
			}
		}
		for _, m := range regexp.MustCompile("`([a-z_/]+\\.go)`").FindAllStringSubmatch(doc, -1) {
			if !fileExists(m[1]) {
				t.Errorf("%s names %s, which is not there", file, m[1])
			}
		}
	}
}

// fileExists looks for a source file by its path, or by its name alone anywhere in the module.
func fileExists(name string) bool {
	if _, err := os.Stat(name); err == nil {
		return true
	}
	found := false
	_ = fs.WalkDir(os.DirFS("."), ".", func(p string, _ fs.DirEntry, err error) error {
		found = found || err == nil && path.Base(p) == name
		return nil
	})
	return found
}
