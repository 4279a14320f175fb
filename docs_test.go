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
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/storm"
)

// docFiles are the documents whose words are held to the code.
var docFiles = []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", docStreaming, docClassification, docStorms}

const (
	docStreaming      = "docs/streaming.md"
	docClassification = "docs/classification.md"
	docStorms         = "docs/storms.md"
)

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
			codeQueueFull, codeModelNotServed, codeInvalidRequest, codeFailedMidStream, codeUpstreamError,
		},
		"event":   {eventCircuitOpened, eventCircuitClosed, eventHalted, eventRecovered, eventKeyRejected, eventStreamFailed},
		"outcome": texts(outcomes[:]),
		"wait":    {waitSameKey, waitBackoff, waitCooling, waitQueue},
		"target":  {targetCircuit, targetKey, targetModel, targetAccount, targetProvider},
		"metric":  metricNames(t),
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

// metricNames are those of all metrics of a pool.
func metricNames(t *testing.T) (names []string) {
	descs := make(chan *prometheus.Desc, 100)
	collector{}.Describe(descs)
	close(descs)
	for d := range descs {
		names = append(names, regexp.MustCompile(`llm_failover_\w+`).FindString(d.String()))
	}
	return names
}

func texts[T ~string](words []T) []string {
	var all []string
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

// anchorsOf are what links to a document's headings may name.
func anchorsOf(doc string) map[string]bool {
	anchors := make(map[string]bool)
	for line := range strings.Lines(doc) {
		if title := strings.TrimLeft(line, "#"); title != line {
			anchors[strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
					return r
				}
				return -1
			}, strings.ToLower(strings.TrimSpace(title)))] = true
		}
	}
	return anchors
}

// TestDocsLinks follows the links between the project's own files and headings, and the names of files in backquotes.
func TestDocsLinks(t *testing.T) {
	for _, file := range docFiles {
		doc := readDoc(t, file)
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(doc, -1) {
			target, anchor, anchored := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			linked := file
			if target != "" {
				linked = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(linked); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if anchored && !anchorsOf(readDoc(t, linked))[anchor] {
				t.Errorf("%s: there is no heading in %s for #%s", file, linked, anchor)
			}
		}
		for _, m := range regexp.MustCompile("`([a-z_/]+\\.go)`").FindAllStringSubmatch(doc, -1) {
			if !fileExists(m[1]) {
				t.Errorf("%s names %s, which is not there", file, m[1])
			}
		}
	}
}

// TestDocsContents looks for each section of the README in its table of contents.
func TestDocsContents(t *testing.T) {
	_, rest, _ := strings.Cut(readDoc(t, "README.md"), "\n## Contents\n")
	contents, rest, _ := strings.Cut(rest, "\n## ")
	sections := regexp.MustCompile(`(?m)^##+ (.+)$`).FindAllStringSubmatch("## "+rest, -1)
	for _, m := range sections {
		if !strings.Contains(contents, "["+m[1]+"](#") {
			t.Errorf("the contents lack %s", m[1])
		}
	}
	if len(sections) == 0 {
		t.Error("there are none")
	}
}

// TestDocsStorms runs each simulation that the document shows: it must print what stands there, and draw the image.
func TestDocsStorms(t *testing.T) {
	found := 0
	for _, s := range snippetsOf(t, readDoc(t, docStorms)) {
		line, want, _ := strings.Cut(s.text, "\n")
		args, ok := strings.CutPrefix(line, "$ caddy llm-failover simulate ")
		if !ok {
			continue
		}
		found++
		fields, image := strings.Fields(args), ""
		if i := slices.Index(fields, "--plot"); i >= 0 {
			image, fields[i+1] = fields[i+1], filepath.Join(t.TempDir(), "plot.svg")
		}
		got, err := simulated(t, fields...)
		if err != nil || got != want {
			t.Errorf("%s:%d: %v; it prints\n%s\nnot\n%s", docStorms, s.line, err, got, want)
		}
		if image != "" && readDoc(t, image) != readDoc(t, fields[slices.Index(fields, "--plot")+1]) {
			t.Errorf("%s:%d: it draws another image than %s", docStorms, s.line, image)
		}
	}
	if found < 3 {
		t.Errorf("only %d simulations", found)
	}
	yaml := 0
	for _, s := range snippetsOf(t, readDoc(t, docStorms)) {
		if s.language == "yaml" {
			yaml++
			if _, err := storm.Parse(strings.NewReader(s.text)); err != nil {
				t.Errorf("%s:%d: %v", docStorms, s.line, err)
			}
		}
	}
	if yaml == 0 {
		t.Error("no scenario")
	}
}

// TestDocsSecrets looks for each secret that an example needs in its comment and in the README, and for each that the
// README's Caddyfiles need in an example.
func TestDocsSecrets(t *testing.T) {
	secret := regexp.MustCompile(`\{(?:env\.|file\.)([\w/]+)\}`)
	readme := readDoc(t, "README.md")
	files, err := filepath.Glob("examples/*/Caddyfile")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	needed := map[string]bool{"GATEWAY_TOKEN": true}
	for _, file := range files {
		example := readDoc(t, file)
		comment, config, _ := strings.Cut(example, "\n{\n")
		row := ""
		for line := range strings.Lines(readme) {
			if strings.HasPrefix(line, "| ["+path.Dir(file)+"]") {
				row = line
			}
		}
		for _, m := range secret.FindAllStringSubmatch(config, -1) {
			needed[m[1]] = true
			if !strings.Contains(comment, m[1]) {
				t.Errorf("the comment of %s does not name %s", file, m[1])
			}
			if !strings.Contains(row, "`"+m[1]+"`") {
				t.Errorf("README.md does not say that %s needs %s", file, m[1])
			}
		}
	}
	for _, s := range snippetsOf(t, readme) {
		if s.language != "caddyfile" {
			continue
		}
		for _, m := range secret.FindAllStringSubmatch(s.text, -1) {
			if !needed[m[1]] {
				t.Errorf("README.md:%d: no example needs %s", s.line, m[1])
			}
		}
	}
}

// TestDocsAccessLogs looks for each place of a caller's credential in the filters of the README.
func TestDocsAccessLogs(t *testing.T) {
	want := []string{"headers>X-Api-Key delete", "headers>Api-Key delete", "headers>X-Goog-Api-Key delete", "headers>Sec-Websocket-Protocol delete", "replace key "}
	for name := range keyParameters {
		want = append(want, "replace "+name+" ")
	}
	found := 0
	for _, s := range snippetsOf(t, readDoc(t, "README.md")) {
		if s.language != "caddyfile" || !strings.Contains(s.text, "format filter") {
			continue
		}
		found++
		for _, w := range want {
			if !strings.Contains(s.text, w) {
				t.Errorf("README.md:%d lacks %q", s.line, w)
			}
		}
	}
	if found == 0 {
		t.Error("no filter was found")
	}
}

// TestDocsErrorEvents compares the error events that docs/streaming.md shows with what callers get.
func TestDocsErrorEvents(t *testing.T) {
	var shown []string
	for _, s := range snippetsOf(t, readDoc(t, docStreaming)) {
		shown = append(shown, s.text)
	}
	cut := classify(Evidence{Status: 200, Found: FoundCut})
	refused := refusal{status: http.StatusBadGateway, code: codeFailedMidStream, message: "the upstream's stream failed: " + cut.Reason}
	sent := map[string][]byte{"gemini's array": elements.write(&refused, dialect.Gemini)}
	for _, d := range dialect.All {
		sent[string(d)] = eventStream.write(&refused, d)
	}
	for name, event := range sent {
		text := strings.TrimRight(strings.ReplaceAll(string(event), "\r\n", "\n"), "\n") + "\n"
		if !slices.Contains(shown, text) {
			t.Errorf("%s does not show the error event of %s:\n%s", docStreaming, name, text)
		}
	}
}

// tableRow is a row of a table that begins with a class.
var tableRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\|$")

func cellsOf(row string) []string {
	cells := strings.Split(strings.Trim(row, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// TestDocsExamples looks up the failures that the tables show.
func TestDocsExamples(t *testing.T) {
	rows := append(readCorpus(t, "testdata/corpus/failures.jsonl"), readCorpus(t, "testdata/corpus/variations.jsonl")...)
	quoted := regexp.MustCompile("`([^`]+)`")
	seen := make(map[string]bool)
	for _, m := range tableRow.FindAllStringSubmatch(readDoc(t, docClassification), -1) {
		cells := cellsOf(m[0])
		if len(cells) != 5 || !slices.Contains(Classes, Class(m[1])) {
			continue
		}
		id := strings.Trim(cells[4], "`")
		i := slices.IndexFunc(rows, func(r corpusRow) bool { return r.ID == id })
		if i < 0 {
			t.Errorf("%s: the corpus has no line %s", docClassification, id)
			continue
		}
		seen[m[1]] = true
		row := &rows[i]
		v := classify(row.evidence())
		if row.Class != m[1] || string(v.Class) != m[1] || row.Scope != cells[3] || string(v.Scope) != cells[3] {
			t.Errorf("%s: %s is shown as %s/%s, labelled %s/%s and judged %s/%s", docClassification, id, m[1], cells[3], row.Class, row.Scope, v.Class, v.Scope)
		}
		if row.Status != 0 && !strings.HasSuffix(cells[1], strconv.Itoa(row.Status)) {
			t.Errorf("%s: %s has the status %d", docClassification, id, row.Status)
		}
		if q := quoted.FindStringSubmatch(cells[2]); q != nil && !strings.Contains(row.Body, q[1]) {
			t.Errorf("%s: %s does not say %s but %s", docClassification, id, q[1], row.Body)
		}
	}
	for _, m := range tableRow.FindAllStringSubmatch(readDoc(t, "README.md"), -1) {
		cells := cellsOf(m[0])
		if len(cells) != 5 || !slices.Contains(Classes, Class(m[1])) {
			continue
		}
		seen["README.md "+m[1]] = true
		for _, q := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if !slices.ContainsFunc(rows, func(r corpusRow) bool { return r.Class == m[1] && strings.Contains(r.Body, q[1]) }) {
				t.Errorf("README.md: no %s in the corpus says %s", m[1], q[1])
			}
		}
	}
	for _, class := range texts(Classes) {
		for _, place := range []string{class, "README.md " + class} {
			if !seen[place] {
				t.Errorf("there is no example: %s", place)
			}
		}
	}
}

// TestDocsVerdicts runs the classify command as it is shown and compares what it says.
func TestDocsVerdicts(t *testing.T) {
	found := 0
	for _, file := range docFiles {
		snippets := snippetsOf(t, readDoc(t, file))
		for i, s := range snippets {
			before, command, ok := strings.Cut(s.text, "llm-failover classify ")
			if s.language != "sh" || !ok || strings.Contains(command, "--jsonl") || i+1 == len(snippets) {
				continue
			}
			found++
			// The body is the first word in quotes of what stands before the command.
			body := ""
			if _, rest, quoted := strings.Cut(before, "'"); quoted {
				body, _, _ = strings.Cut(rest, "'")
				body = strings.ReplaceAll(body, `\n`, "\n")
			}
			cmd := classifyCommand()
			if err := cmd.ParseFlags(shellWords(command)); err != nil {
				t.Fatal(err)
			}
			flags := caddycmd.Flags{FlagSet: cmd.Flags()}
			headers, err := flags.GetStringArray("header")
			if err != nil {
				t.Fatal(err)
			}
			row, err := recordedFrom(flags, headers, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			if err := explain(&said, classify(row.evidence(time.Now()))); err != nil {
				t.Fatal(err)
			}
			if said.String() != snippets[i+1].text {
				t.Errorf("%s:%d: the command says\n%s", file, s.line, said.String())
			}
		}
	}
	if found == 0 {
		t.Error("no command was found")
	}
}

// shellWords splits a command at its spaces; single quotes hold a word together.
func shellWords(command string) []string {
	var words []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
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
