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
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// What the words of the config may be.
var (
	selectPolicies = []string{"first", "round_robin", "random", "weighted_random", "least_in_flight", "sticky"}
	authSchemes    = []string{"bearer", "x-api-key", "x-goog-api-key", "api-key", "header"}
	halfOpenModes  = []string{"probe", "reset"}
)

// defaultName is the name of a pool, and of a lone provider, that was given none.
const defaultName = "default"

// validate checks the config as it was written: no placeholder is resolved and no default is set. Its errors show
// no secret. The Caddyfile parser asks the same checks line by line; this is what JSON configs get.
func (h *Handler) validate() error {
	if err := h.check(); err != nil {
		return err
	}
	if len(h.Providers) == 0 {
		return errors.New("no provider: a pool needs at least one, with a base_url and a key")
	}
	names := make(map[string]bool)
	for i, p := range h.Providers {
		if p == nil || p.Name == "" && len(h.Providers) > 1 {
			return fmt.Errorf("provider %d of %d has no name", i+1, len(h.Providers))
		}
		if names[p.Name] {
			return fmt.Errorf("two providers are named %q", p.Name)
		}
		names[p.Name] = true
		if err := p.validate(); err != nil {
			return err
		}
	}
	return cmp.Or(h.Retry.validate(), h.Circuit.validate(), h.Halt.validate(), h.Timeouts.validate(), h.Stream.validate(), h.Limits.validate(),
		h.checkDeadline())
}

// check checks the pool's own values, those of one line each.
func (h *Handler) check() error {
	if h.Pool != "" {
		if err := checkName("pool", h.Pool); err != nil {
			return err
		}
	}
	if err := h.Select.validate(); err != nil {
		return err
	}
	return checkRules(h.Classify)
}

// checkDeadline refuses a deadline within which no attempt could start.
func (h *Handler) checkDeadline() error {
	if h.Timeouts == nil || h.Timeouts.Deadline == 0 {
		return nil
	}
	least := caddy.Duration(time.Second)
	if h.Retry != nil && h.Retry.MinAttempt > 0 {
		least = h.Retry.MinAttempt
	}
	if h.Timeouts.Deadline < least {
		return fmt.Errorf("timeouts: deadline %s is shorter than min_attempt %s of retry, so no attempt could ever start",
			time.Duration(h.Timeouts.Deadline), time.Duration(least))
	}
	return nil
}

// validate checks one provider with its keys.
func (p *Provider) validate() error {
	if err := p.check(); err != nil {
		return p.errorf("%w", err)
	}
	if len(p.Keys) == 0 {
		return p.errorf("no keys: it needs at least one, keys { <name> <secret> }")
	}
	names := make(map[string]bool)
	for i, k := range p.Keys {
		if k == nil {
			return p.errorf("key %d of %d has no name", i+1, len(p.Keys))
		}
		if err := k.validate(); err != nil {
			return p.errorf("%w", err)
		}
		if names[k.Name] {
			return p.errorf("two keys are named %q", k.Name)
		}
		names[k.Name] = true
	}
	return p.checkAccounts()
}

// errorf is fmt.Errorf with the provider's name before it.
func (p *Provider) errorf(format string, args ...any) error {
	name := p.Name
	if name == "" {
		name = defaultName
	}
	return fmt.Errorf("provider %q: %w", name, fmt.Errorf(format, args...))
}

// check checks the provider's own values, those of one line each.
func (p *Provider) check() error {
	if p.Name != "" {
		if err := checkName("provider", p.Name); err != nil {
			return err
		}
	}
	if err := checkBaseURL(p.BaseURL); err != nil {
		return err
	}
	if err := p.Auth.validate(); err != nil {
		return err
	}
	for _, name := range p.Dialects {
		if err := oneOf("dialects", dialect.Dialect(name), dialect.All); err != nil {
			return err
		}
	}
	if p.Vendor != "" {
		if err := oneOf("vendor", p.Vendor, Vendors); err != nil {
			return err
		}
	}
	asked := make(map[string]bool)
	for _, m := range p.Models {
		switch {
		case m.Asked == "":
			return errors.New("models: a model has no asked name")
		case asked[m.Asked]:
			return fmt.Errorf("models: %q is listed twice", m.Asked)
		case strings.Contains(m.Sent, "*"):
			return fmt.Errorf("models: %q cannot be sent as %q: * is for asked names only", m.Asked, m.Sent)
		}
		asked[m.Asked] = true
	}
	return checkRules(p.Classify)
}

// checkAccounts refuses a declared account that bears the name of a key outside it: that key, or one that has no
// account and so bears its own name, could not be told from the account in what operators see.
func (p *Provider) checkAccounts() error {
	declared := make(map[string]bool)
	accountOf := func(k *Key) string {
		if k.Account != "" {
			return k.Account
		}
		return p.Account
	}
	for _, k := range p.Keys {
		declared[accountOf(k)] = true
	}
	for _, k := range p.Keys {
		if declared[k.Name] && accountOf(k) != k.Name {
			return p.errorf("account %q bears the name of a key that does not belong to it; rename one of the two", k.Name)
		}
	}
	return nil
}

// validate checks one key.
func (k *Key) validate() error {
	if err := checkName("key", k.Name); err != nil {
		return err
	}
	switch {
	case k.Secret == "":
		return fmt.Errorf("key %q has no secret", k.Name)
	case strings.Contains(k.Secret, "{http."):
		// {file.name} ends here too: without a slash it is the Caddyfile's shorthand for a part of the request's path.
		return fmt.Errorf("key %q: a secret is resolved when the config is loaded and cannot come from a request; it may hold {env.NAME} or {file./path/to/file}", k.Name)
	case k.Weight < 0:
		return fmt.Errorf("key %q: weight %d must be 1 or more", k.Name, k.Weight)
	case k.MaxInFlight < 0:
		return fmt.Errorf("key %q: max_in_flight %d must be 1 or more", k.Name, k.MaxInFlight)
	case slices.Contains(k.Models, ""):
		return fmt.Errorf("key %q: models: a pattern is empty", k.Name)
	}
	return nil
}

func (a *Auth) validate() error {
	if a == nil {
		return nil
	}
	if err := oneOf("auth", a.Scheme, authSchemes); err != nil {
		return err
	}
	if a.Scheme != "header" {
		if a.Field != "" || a.Value != "" {
			return fmt.Errorf("auth: %s takes no field and no value; write auth header <field> <value with {key}>", a.Scheme)
		}
		return nil
	}
	switch {
	case a.Field == "" || a.Value == "":
		return errors.New("auth: header needs a field and a value: auth header <field> <value with {key}>")
	case !httpguts.ValidHeaderFieldName(a.Field):
		return fmt.Errorf("auth: %q is not the name of a header field", a.Field)
	case !strings.Contains(a.Value, "{key}"):
		// The value itself is not shown: who forgets {key} may have written the secret there.
		return fmt.Errorf("auth: the value for header field %s does not contain {key}, where the credential goes", a.Field)
	}
	return nil
}

func (s *Select) validate() error {
	if s == nil {
		return nil
	}
	if s.Policy != "" {
		if err := oneOf("select", s.Policy, selectPolicies); err != nil {
			return err
		}
	}
	switch {
	case s.Policy != "sticky" && s.Placeholder != "":
		return errors.New("select: only sticky takes a placeholder")
	case s.Policy == "sticky" && !strings.Contains(s.Placeholder, "{"):
		return errors.New("select: sticky needs a placeholder that tells callers apart, such as {http.request.header.X-Session}")
	}
	return nil
}

// checkRules checks the operator's own rules.
func checkRules(rules []Rule) error {
	for i := range rules {
		if err := rules[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Retry) validate() error {
	if r == nil {
		return nil
	}
	if err := checkClasses("retry: on", r.On); err != nil {
		return err
	}
	if err := checkClasses("retry: same_key_on", r.SameKeyOn); err != nil {
		return err
	}
	for _, wait := range r.SameKey {
		if wait == sameKeyOff && len(r.SameKey) == 1 {
			break
		}
		if err := notNegative("retry", namedDuration{"same_key", wait}); err != nil {
			return err
		}
	}
	switch {
	case r.BackoffCap != 0 && r.BackoffCap < r.Backoff:
		return fmt.Errorf("retry: the cap of backoff, %s, is below its base %s", time.Duration(r.BackoffCap), time.Duration(r.Backoff))
	case r.Jitter != nil && !(*r.Jitter >= 0 && *r.Jitter <= 100): // so that NaN is refused too
		return fmt.Errorf("retry: jitter %v must be 0 to 100 percent", *r.Jitter)
	case r.MaxRetries != nil && *r.MaxRetries < 0:
		return fmt.Errorf("retry: max_retries %d must be 0 or more", *r.MaxRetries)
	case r.Budget != nil && !(r.Budget.Percent >= 0 && r.Budget.Percent <= 100):
		return fmt.Errorf("retry: budget %v must be 0 to 100 percent", r.Budget.Percent)
	case r.Budget != nil && !(r.Budget.PerSecond >= 0 && !math.IsInf(r.Budget.PerSecond, 0)):
		return fmt.Errorf("retry: budget: %v a second must be 0 or more", r.Budget.PerSecond)
	}
	return notNegative("retry",
		namedDuration{"backoff", r.Backoff}, namedDuration{"backoff_cap", r.BackoffCap}, namedDuration{"max_wait", r.MaxWait},
		namedDuration{"window", r.Window}, namedDuration{"min_attempt", r.MinAttempt})
}

func (c *Circuit) validate() error {
	if c == nil {
		return nil
	}
	if err := checkClasses("circuit: on", c.On); err != nil {
		return err
	}
	for _, class := range c.On {
		if class.Parent() == BadRequest {
			return fmt.Errorf("circuit: on may not list %s: what is wrong with a request is no fault of the key", class)
		}
	}
	if c.Threshold < 0 {
		return fmt.Errorf("circuit: threshold %d must be 1 or more", c.Threshold)
	}
	if c.HalfOpen != "" {
		if err := oneOf("circuit: half_open", c.HalfOpen, halfOpenModes); err != nil {
			return err
		}
	}
	return notNegative("circuit", namedDuration{"cooldown", c.Cooldown}, namedDuration{"ramp", c.Ramp})
}

func (h *Halt) validate() error {
	if h == nil {
		return nil
	}
	if err := notNegative("halt",
		namedDuration{"base", h.Base}, namedDuration{"max", h.Max}, namedDuration{"rate_limit", h.RateLimit}, namedDuration{"overload", h.Overload},
		namedDuration{"overload_cap", h.OverloadCap}, namedDuration{"model", h.Model}, namedDuration{"recheck", h.Recheck},
		namedDuration{"max_cooldown", h.MaxCooldown}); err != nil {
		return err
	}
	switch {
	case h.Max != 0 && h.Max < h.Base:
		return fmt.Errorf("halt: max %s is below base %s", time.Duration(h.Max), time.Duration(h.Base))
	case h.OverloadCap != 0 && h.OverloadCap < h.Overload:
		return fmt.Errorf("halt: the cap of overload, %s, is below its first rest %s", time.Duration(h.OverloadCap), time.Duration(h.Overload))
	}
	return nil
}

func (t *Timeouts) validate() error {
	if t == nil {
		return nil
	}
	if t.DeadlineHeader != "" && !httpguts.ValidHeaderFieldName(t.DeadlineHeader) {
		return fmt.Errorf("timeouts: deadline_header: %q is not the name of a header field", t.DeadlineHeader)
	}
	return notNegative("timeouts",
		namedDuration{"headers", t.Headers}, namedDuration{"first_token", t.FirstToken}, namedDuration{"idle", t.Idle}, namedDuration{"idle_content", t.IdleContent},
		namedDuration{"deadline", t.Deadline})
}

func (s *Stream) validate() error {
	if s == nil {
		return nil
	}
	return notNegative("stream", namedDuration{"keepalive", s.Keepalive})
}

func (l *Limits) validate() error {
	switch {
	case l == nil:
		return nil
	case l.Body < 0:
		return fmt.Errorf("limits: body %d must be 1 byte or more", l.Body)
	case l.Held < 0:
		return fmt.Errorf("limits: held %d must be 1 byte or more", l.Held)
	case l.Held > 0 && l.Held < l.Body:
		return fmt.Errorf("limits: held %d is below body %d", l.Held, l.Body)
	case l.MaxInFlight < 0:
		return fmt.Errorf("limits: max_in_flight %d must be 1 or more", l.MaxInFlight)
	case l.Queue < 0:
		return fmt.Errorf("limits: queue %d must be 1 or more", l.Queue)
	case l.Queue > 0 && l.MaxInFlight == 0:
		return errors.New("limits: a queue needs max_in_flight")
	case (l.Queue > 0) != (l.QueueWait > 0):
		return errors.New("limits: queue and queue_wait go together")
	}
	return notNegative("limits", namedDuration{"queue_wait", l.QueueWait})
}

// checkName refuses names that could not stand in an admin path or a log line. Of a path with . or .. as a part, servers
// make another one: an order for the key . would be one for its whole provider.
func checkName(what, name string) error {
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune("/{}", r) }
	switch {
	case name == "":
		return fmt.Errorf("a %s has no name", what)
	case name == "." || name == "..":
		return fmt.Errorf("%s name %q cannot stand in the paths of the admin API", what, name)
	case strings.ContainsFunc(name, odd):
		return fmt.Errorf("%s name %q may not hold spaces, slashes or braces", what, name)
	}
	return nil
}

// checkBaseURL wants scheme, host and perhaps a path. What may hold a secret (userinfo, query) is not shown.
func checkBaseURL(raw string) error {
	shown, _, _ := strings.Cut(raw, "?")
	shown, _, _ = strings.Cut(shown, "#")
	if scheme, rest, ok := strings.Cut(shown, "//"); ok && strings.Contains(rest, "@") {
		shown = scheme + "//…" + rest[strings.LastIndex(rest, "@"):]
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("base_url %q must be http:// or https://, a host, and perhaps a path", shown)
	case u.User != nil:
		return fmt.Errorf("base_url %q must not hold credentials; they belong in keys", shown)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return fmt.Errorf("base_url %q must not have a query or a fragment", shown)
	}
	return nil
}

// checkClasses checks that all classes are known.
func checkClasses(where string, classes []Class) error {
	for _, class := range classes {
		if err := oneOf(where, class, Classes); err != nil {
			return err
		}
	}
	return nil
}

// oneOf checks that a word is among those known, and lists them if it is not.
func oneOf[T ~string](where string, word T, known []T) error {
	if slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("%s: unknown %q; it may be %s", where, string(word), listWords(known))
}

// listWords joins words for an error message.
func listWords[T ~string](words []T) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}

// namedDuration is a duration with the word that sets it.
type namedDuration struct {
	word  string
	value caddy.Duration
}

// notNegative refuses negative durations.
func notNegative(where string, durations ...namedDuration) error {
	for _, d := range durations {
		if d.value < 0 {
			return fmt.Errorf("%s: %s %s must be above zero", where, d.word, time.Duration(d.value))
		}
	}
	return nil
}
