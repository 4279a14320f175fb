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

package storm

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// The plot's measures, in pixels, and its colours, which those can tell apart too who cannot tell red from green
// (Okabe and Ito 2008).
const (
	plotWidth   = 900
	panelHeight = 150
	marginLeft  = 60
	marginRight = 20
	marginTop   = 64
	panelGap    = 44
	maxBars     = 180
	maxTitle    = 100 // characters that fit

	colourGood   = "#0072b2"
	colourBad    = "#d55e00"
	colourOutage = "#f0e9d8"
	colourText   = "#222222"
	colourLine   = "#bbbbbb"
)

// Plot draws the runs of a scenario as an SVG image: calls over time, one panel a run, all to one scale.
func Plot(w io.Writer, title string, s *Scenario, runs []*Run) error {
	p := plot{Writer: bufio.NewWriter(w), bucket: time.Duration(s.Bucket)}
	buckets := 1
	for _, r := range runs {
		buckets = max(buckets, len(r.Good))
	}
	p.merge = int((niceTime(time.Duration(buckets)*p.bucket/maxBars) + p.bucket - 1) / p.bucket)
	p.bars = (buckets + p.merge - 1) / p.merge
	p.span = time.Duration(p.bars*p.merge) * p.bucket
	for _, r := range runs {
		for i := range p.bars {
			good, bad := p.sums(r, i)
			p.top = max(p.top, good+bad)
		}
	}
	height := marginTop + len(runs)*(panelHeight+panelGap)
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="%s">`, plotWidth, height, colourText)
	p.printf("<title>%s</title>", escaped(title))
	p.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, height)
	if shown := []rune(title); len(shown) > maxTitle {
		title = string(shown[:maxTitle-1]) + "…"
	}
	p.text(marginLeft, 22, "start", 15, title)
	p.legend()
	for i, r := range runs {
		p.panel(marginTop+i*(panelHeight+panelGap)+14, s, r)
	}
	p.printf("</svg>")
	return p.Flush()
}

type plot struct {
	*bufio.Writer
	bucket time.Duration
	merge  int // buckets in a bar
	bars   int
	span   time.Duration
	top    int // calls in the tallest bar
}

func (p *plot) printf(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *plot) text(x, y float64, anchor string, size int, text string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`, x, y, anchor, size, escaped(text))
}

func escaped(text string) string {
	var safe strings.Builder
	_ = xml.EscapeText(&safe, []byte(text)) // a Builder takes everything
	return safe.String()
}

func (p *plot) legend() {
	x := float64(marginLeft)
	for _, entry := range [...]struct{ colour, text string }{
		{colourGood, "calls that succeed"}, {colourBad, "calls that fail"}, {colourOutage, "outage"},
	} {
		p.printf(`<rect x="%.1f" y="34" width="12" height="12" fill="%s" stroke="%s"/>`, x, entry.colour, colourLine)
		p.text(x+18, 44, "start", 12, entry.text)
		x += 150
	}
	p.text(plotWidth-marginRight, 44, "end", 12, "calls per "+strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace((time.Duration(p.merge)*p.bucket).String()))
}

// sums are the calls in one bar.
func (p *plot) sums(r *Run, bar int) (good, bad int) {
	for i := bar * p.merge; i < min((bar+1)*p.merge, len(r.Good)); i++ {
		good += r.Good[i]
		bad += r.Bad[i]
	}
	return good, bad
}

// panel draws a run, below y.
func (p *plot) panel(y int, s *Scenario, r *Run) {
	const width = plotWidth - marginLeft - marginRight
	x := func(at time.Duration) float64 { return marginLeft + width*float64(at)/float64(p.span) }
	bottom := float64(y + panelHeight)
	step := niceStep(float64(p.top) / 3)
	scale := math.Max(step, math.Ceil(float64(p.top)/step)*step)
	tall := func(n float64) float64 { return panelHeight * n / scale }

	p.text(marginLeft, float64(y-6), "start", 13, fmt.Sprintf("%s: %d calls, at most %d in %v", r.Name, r.Calls, r.Peak, p.bucket))
	if from, to, some := s.outage(p.span); some {
		p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, x(from), y, x(to)-x(from), panelHeight, colourOutage)
	}
	for n := 0.0; n <= scale; n += step {
		p.printf(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="0.5"/>`, marginLeft, plotWidth-marginRight, bottom-tall(n), bottom-tall(n), colourLine)
		p.text(marginLeft-6, bottom-tall(n)+4, "end", 11, fmt.Sprintf("%.0f", n))
	}
	bar := float64(width) / float64(p.bars)
	for i := range p.bars {
		good, bad := p.sums(r, i)
		left, base := marginLeft+float64(i)*bar, bottom
		for _, part := range [...]struct {
			n      int
			colour string
		}{{good, colourGood}, {bad, colourBad}} {
			if part.n > 0 {
				h := tall(float64(part.n))
				p.printf(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="%s"/>`, left, base-h, math.Max(bar-0.5, 0.5), h, part.colour)
				base -= h
			}
		}
	}
	tick, unit, name := niceTime(p.span/8), time.Second, "s"
	switch {
	case tick >= time.Hour:
		unit, name = time.Hour, "h"
	case tick >= time.Minute:
		unit, name = time.Minute, "min"
	}
	for t := time.Duration(0); t <= p.span; t += tick {
		p.printf(`<line x1="%.1f" x2="%.1[1]f" y1="%.1f" y2="%.1f" stroke="%s"/>`, x(t), bottom, bottom+4, colourLine)
		p.text(x(t), bottom+16, "middle", 11, fmt.Sprintf("%g %s", float64(t)/float64(unit), name))
	}
}

// niceTime is the next larger of the spans in which people think.
func niceTime(least time.Duration) time.Duration {
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	nice := [...]time.Duration{100 * ms, 200 * ms, 500 * ms, s, 2 * s, 5 * s, 10 * s, 20 * s, 30 * s, m, 2 * m, 5 * m, 10 * m, 15 * m, 30 * m, 60 * m, 120 * m}
	for _, d := range nice {
		if d >= least {
			return d
		}
	}
	return 3 * time.Hour
}

// outage is from when to when it lasts, as far as it is shown.
func (s *Scenario) outage(span time.Duration) (from, to time.Duration, some bool) {
	if to = min(time.Duration(s.BackAt), span); to == 0 || len(s.Phases) == 0 {
		return 0, 0, false
	}
	from = to
	for _, p := range s.Phases {
		from = min(from, time.Duration(p.From))
	}
	return from, to, from < to
}

// niceStep is the next larger of 1, 2 and 5 times a power of ten, and at least 1.
func niceStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(math.Max(step, 1))))
	for _, m := range [...]float64{1, 2, 5} {
		if m*power >= step {
			return m * power
		}
	}
	return 10 * power
}
