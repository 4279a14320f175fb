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

//go:build tooltests

package llmfailover

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// browser is a headless Chromium with one page, spoken to in the DevTools protocol through pipes.
type browser struct {
	t       *testing.T
	to      io.Writer
	from    *bufio.Reader
	session string
	n       int
	asked   []string // URLs of all requests
	said    []string // to the console, also about what the page's policy refused
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := tool(t, "chromium")
	itsIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, itsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+profile, "--window-size=1280,800", "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{itsIn, itsOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	itsIn.Close()
	itsOut.Close()
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		_ = from.SetReadDeadline(time.Now().Add(10 * time.Second))
		b.session = ""
		_, _ = fmt.Fprintf(to, `{"id":0,"method":"Browser.close"}%c`, 0)
		_, _ = io.Copy(io.Discard, b.from)
		to.Close()
		from.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// Its helpers may still write their last lines.
		eventually(t, "the profile can be removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	_ = from.SetReadDeadline(time.Now().Add(2 * time.Minute))
	target := b.call("Target.createTarget", `{"url":"about:blank"}`).Get("targetId").String()
	b.session = b.call("Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`, target)).Get("sessionId").String()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.call(domain+".enable", "{}")
	}
	return b
}

// call sends a command and returns its result. What else the browser tells until then is noted.
func (b *browser) call(method, params string) gjson.Result {
	b.t.Helper()
	b.n++
	session := ""
	if b.session != "" {
		session = fmt.Sprintf(`"sessionId":%q,`, b.session)
	}
	if _, err := fmt.Fprintf(b.to, `{"id":%d,%s"method":%q,"params":%s}%c`, b.n, session, method, params, 0); err != nil {
		b.t.Fatal(err)
	}
	for {
		text, err := b.from.ReadString(0)
		if err != nil {
			b.t.Fatal(method, err)
		}
		leaks.look("browser", []byte(text))
		answer := gjson.Parse(strings.TrimSuffix(text, "\x00"))
		switch answer.Get("method").String() {
		case "Network.requestWillBeSent":
			b.asked = append(b.asked, answer.Get("params.request.url").String())
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
			b.said = append(b.said, answer.Get("params").Raw)
		}
		if answer.Get("id").Int() == int64(b.n) {
			if e := answer.Get("error"); e.Exists() {
				b.t.Fatal(method, e.Raw)
			}
			return answer.Get("result")
		}
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) gjson.Result {
	b.t.Helper()
	result := b.call("Runtime.evaluate", fmt.Sprintf(`{"expression":%s,"returnByValue":true}`, toJSON(b.t, expression)))
	if e := result.Get("exceptionDetails"); e.Exists() {
		b.t.Fatal(e.Raw)
	}
	return result.Get("result.value")
}

// wait waits until an expression is true.
func (b *browser) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if !repeat(ctx, 50*time.Millisecond, func() bool { return b.eval("!!(" + expression + ")").Bool() }) {
		b.t.Errorf("still not: %s in %.3000s", expression, b.eval("document.body.innerText"))
	}
}

// faint lists the texts whose contrast with what lies under them is below 4.5 to 1, the least that WCAG's AA wants.
const faint = `(() => {
	const rgba = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => rgba(c).slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const under = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((rgba(c)[3] ?? 1) > 0) return c; } return "rgb(255, 255, 255)"; };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	const found = [];
	let seen = 0;
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || ["SCRIPT", "NOSCRIPT", "STYLE"].includes(e.tagName)) continue;
		seen++;
		const [a, b] = [light(getComputedStyle(e).color), light(under(e))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.outerHTML + " " + (a + 0.05) / (b + 0.05));
	}
	return seen < 40 ? ["only " + seen + " texts"] : found;
})()`

func TestStatusPageInChromium(t *testing.T) {
	b := newBrowser(t)
	a := newUpstream(t).on("k1", fails(402, "Insufficient Balance")).on("k2", limited("Retry-After", "100"))
	s := serve(t, statusSite(a.URL, "", "k1", "k2", "k3"))
	b.call("Page.navigate", fmt.Sprintf(`{"url":%q}`, s.url+"/status?mine=1"))
	const isLive = `document.readyState === "complete" && document.getElementById("live").textContent === "Live."`
	b.wait(isLive)
	b.wait(`document.title === "all keys free – LLM failover"`)
	b.eval(`getSelection().selectAllChildren(document.querySelector("h2"))`)
	b.eval(`document.querySelector("table").marked = true`)

	s.post("/v1/chat/completions", chat("m")).want(200, "from-k3")
	b.wait(`document.querySelector("tbody.dead th b")?.textContent === "default / k1"`)
	b.wait(`document.title === "1 of 3 keys free – LLM failover"`)
	b.wait(`document.querySelector("path.failures").getAttribute("d") !== ""`)
	if !b.eval(`document.querySelector("table").marked && getSelection().toString() !== ""`).Bool() {
		t.Error("the page was made anew")
	}
	const countdown = `document.querySelector("tbody.dead td:nth-of-type(4) small").textContent`
	if first := b.eval(countdown).String(); strings.HasPrefix(first, "in ") {
		b.wait(fmt.Sprintf("%s !== %q", countdown, first))
	} else {
		t.Error(first)
	}
	s.ask(http.MethodPost, "/llm_failover/default/default/k3/disable").want(200)
	b.wait(`document.querySelector("tbody.off")`)
	for _, scheme := range []string{"light", "dark"} {
		b.call("Emulation.setEmulatedMedia", fmt.Sprintf(`{"features":[{"name":"prefers-color-scheme","value":%q}]}`, scheme))
		if found := b.eval(faint); found.Raw != "[]" {
			t.Errorf("%s: %s", scheme, found.Raw)
		}
		if paper := b.eval(`getComputedStyle(document.body).backgroundColor`).String(); (paper == "rgb(255, 255, 255)") != (scheme == "light") {
			t.Errorf("%s: %s", scheme, paper)
		}
	}

	b.call("Emulation.setDeviceMetricsOverride", `{"width":360,"height":700,"deviceScaleFactor":1,"mobile":true}`)
	if wide := b.eval(`document.querySelector("h2").textContent = "x".repeat(200), document.documentElement.scrollWidth`).Int(); wide > 360 {
		t.Errorf("with a long name the page is %d wide", wide)
	}
	b.call("Emulation.clearDeviceMetricsOverride", `{}`)

	s.reload(statusSite(a.URL, "", "k1", "k2", "k3", "k4"))
	b.wait(`document.body.innerText.includes("default / k4")`)
	b.wait(isLive)
	if stream := s.url + "/status?mine=1&events=page"; !slices.Contains(b.asked, stream) {
		t.Errorf("it did not ask for %s but for %q", stream, b.asked)
	}
	for _, url := range b.asked {
		if !strings.HasPrefix(url, s.url+"/status") && url != "data:," {
			t.Error("it asked for", url)
		}
	}
	if len(b.said) > 0 {
		t.Error("the console says", b.said)
	}

	s.reload("respond gone") // an old page must say so
	b.wait(`document.body.classList.contains("stale") && document.getElementById("live").textContent.match(/^Not live: no news since [-0-9]+ [:0-9]+ UTC/)`)
	s.reload(statusSite(a.URL, "", "k1", "k2"))
	b.wait(isLive + ` && !document.body.classList.contains("stale")`)

	t.Run("without JavaScript", func(t *testing.T) {
		s.post("/v1/chat/completions", chat("m"))
		b.call("Emulation.setScriptExecutionDisabled", `{"value":true}`)
		b.call("Page.navigate", fmt.Sprintf(`{"url":%q}`, s.url+"/status"))
		b.wait(`document.body?.innerText.includes("Loaded anew") && document.body.innerText.includes("default / k1") && !document.querySelector("tbody.fine")`)
		s.ask(http.MethodPost, "/llm_failover/default/reset").want(200)
		b.wait(`document.querySelector("tbody.fine")`)
	})
	b.call("Page.navigate", `{"url":"about:blank"}`)
	wantNoWatcher(t)
}
