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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llm_failover", parseCaddyfile)
	httpcaddyfile.RegisterDirectiveOrder("llm_failover", httpcaddyfile.Before, "reverse_proxy")
}

// parseCaddyfile sets up a handler from the directive, and sees to it that no two directives share a pool's name.
func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	h.Reset()
	h.Next()
	if err := claimPool(h, handler); err != nil {
		return nil, h.WrapErr(err)
	}
	return handler, nil
}

// claimPool notes where the pool is defined. A snippet that is imported twice is the same directive at both places,
// unless import arguments make two different ones of it.
func claimPool(h httpcaddyfile.Helper, handler *Handler) error {
	type claim struct{ at, config string }
	const stateKey = "llm_failover.pools"

	config, err := json.Marshal(handler)
	if err != nil {
		return err
	}
	name := handler.Pool
	if name == "" {
		name = defaultName
	}
	mine := claim{fmt.Sprintf("%s:%d", h.File(), h.Line()), string(config)}

	pools, ok := h.State[stateKey].(map[string]claim)
	if !ok {
		pools = make(map[string]claim)
		h.State[stateKey] = pools
	}
	if first, taken := pools[name]; taken && first != mine {
		return fmt.Errorf("pool %q is already defined at %s; give one of the two another name with: pool <name>", name, first.at)
	}
	pools[name] = mine
	return nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_failover [<matcher>] [<base_url>] {
//	    pool     <name>
//	    select   first|round_robin|random|weighted_random|least_in_flight|sticky <placeholder>
//	    classify <class> [status <n...>] [code <code...>] [text <words>]
//
//	    # providers
//	    provider <name> <base_url> {
//	        keys {
//	            <name> <secret> {
//	                account <name>
//	                models  <pattern...>
//	                weight  <n>
//	                max_in_flight <n>
//	            }
//	        }
//	        account   <name>
//	        auth      bearer|x-api-key|x-goog-api-key|api-key|header <field> <value with {key}>
//	        models {
//	            <asked> [<sent>]
//	        }
//	        dialects  chat|responses|messages|gemini...
//	        vendor    <name>
//	        header_up [+|-]<field> [<value>]
//	        transport <module> {
//	            ...
//	        }
//	        classify  <class> [status <n...>] [code <code...>] [text <words>]
//	    }
//
//	    # what is tried again
//	    retry {
//	        on          <class...>
//	        same_key    <wait...>|off
//	        same_key_on <class...>
//	        backoff     <base> [<cap>]
//	        jitter      <percent>
//	        max_retries <n>
//	        max_wait    <duration>
//	        window      <duration>
//	        min_attempt <duration>
//	        budget      <percent> [<per_second>]
//	    }
//
//	    # what is set aside
//	    circuit {
//	        threshold <n>
//	        cooldown  <duration>
//	        on        <class...>
//	        half_open probe|reset
//	    }
//	    halt {
//	        base         <duration>
//	        max          <duration>
//	        rate_limit   <duration>
//	        overload     <duration> [<cap>]
//	        model        <duration>
//	        recheck      <duration>
//	        max_cooldown <duration>
//	    }
//
//	    # what is waited for, and what is held
//	    timeouts {
//	        headers     <duration>
//	        first_token <duration>
//	        idle        [content] <duration>
//	        deadline    <duration>
//	    }
//	    stream keepalive <interval>
//	    limits {
//	        body          <size>
//	        held          <size>
//	        max_in_flight <n> [queue <n> <wait>]
//	    }
//	}
//
// With a base_url the directive has one provider, named "default", and every line of a provider block may stand in
// the directive itself (classify is the pool's, then). Without one there must be provider blocks.
//
// A secret may hold placeholders that are known when the config is loaded: {env.NAME} and {file./path}. They are not
// resolved here, so that the adapted config holds no secret.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume directive name
	directive := d.Token()

	args := d.RemainingArgs()
	if len(args) > 1 {
		return errAt(directive, errors.New("too many arguments; write: llm_failover [<matcher>] [<base_url>] { ... }"))
	}
	words, check := h.words(), h.check
	if len(args) == 1 {
		p := &Provider{Name: defaultName, BaseURL: args[0]}
		h.Providers = append(h.Providers, p)
		if err := p.check(); err != nil {
			return errAt(directive, err)
		}
		words = append(words, p.words()...)
		words = append(words, keyword{name: "provider", misplaced: "a directive with a base_url is a provider itself; move the base_url into a provider block of its own"})
		check = func() error { return cmp.Or(h.check(), p.check()) }
	} else {
		words = append(words, h.providerWord())
		for _, w := range new(Provider).words() {
			words = append(words, keyword{name: w.name, misplaced: "it belongs in a provider block, or after a base_url: llm_failover <base_url> { ... }"})
		}
	}
	if err := readBlock(d, "llm_failover", words, check); err != nil {
		return err
	}
	if err := h.validate(); err != nil {
		return errAt(directive, err)
	}
	return nil
}

// words are the words of the directive that are the pool's own.
func (h *Handler) words() []keyword {
	return []keyword{
		{name: "pool", usage: "<name>", set: setText(&h.Pool)},
		{name: "select", usage: "<policy> [<placeholder>]", set: func(args []string) error {
			h.Select = &Select{Policy: args[0]}
			if len(args) > 1 {
				h.Select.Placeholder = args[1]
			}
			return nil
		}},
		classifyWord(&h.Classify),
		{name: "retry", block: func(d *caddyfile.Dispenser) error {
			h.Retry = new(Retry)
			return readBlock(d, "retry", h.Retry.words(), h.Retry.validate)
		}},
		{name: "circuit", block: func(d *caddyfile.Dispenser) error {
			h.Circuit = new(Circuit)
			return readBlock(d, "circuit", h.Circuit.words(), h.Circuit.validate)
		}},
		{name: "halt", block: func(d *caddyfile.Dispenser) error {
			h.Halt = new(Halt)
			return readBlock(d, "halt", h.Halt.words(), h.Halt.validate)
		}},
		{name: "timeouts", block: func(d *caddyfile.Dispenser) error {
			h.Timeouts = new(Timeouts)
			return readBlock(d, "timeouts", h.Timeouts.words(), h.Timeouts.validate)
		}},
		{name: "stream", usage: "keepalive <interval>", set: func(args []string) error {
			h.Stream = new(Stream)
			if len(args) != 2 || args[0] != "keepalive" {
				return errors.New("write: stream keepalive <interval>")
			}
			return setDurations(&h.Stream.Keepalive)(args[1:])
		}},
		{name: "limits", block: func(d *caddyfile.Dispenser) error {
			h.Limits = new(Limits)
			return readBlock(d, "limits", h.Limits.words(), h.Limits.validate)
		}},
	}
}

func (r *Retry) words() []keyword {
	return []keyword{
		{name: "on", usage: "<class...>", set: setTexts(&r.On)},
		{name: "same_key", usage: "<wait...>", set: func(args []string) error {
			if len(args) == 1 && args[0] == "off" {
				r.SameKey = []caddy.Duration{sameKeyOff}
				return nil
			}
			r.SameKey = make([]caddy.Duration, len(args))
			for i := range args {
				if err := setDurations(&r.SameKey[i])(args[i:]); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "same_key_on", usage: "<class...>", set: setTexts(&r.SameKeyOn)},
		{name: "backoff", usage: "<base> [<cap>]", set: setDurations(&r.Backoff, &r.BackoffCap)},
		{name: "jitter", usage: "<percent>", set: setPercent(&r.Jitter)},
		{name: "max_retries", usage: "<n>", set: func(args []string) error {
			r.MaxRetries = new(int)
			return setNumber(r.MaxRetries, 0)(args)
		}},
		{name: "max_wait", usage: "<duration>", set: setDurations(&r.MaxWait)},
		{name: "window", usage: "<duration>", set: setDurations(&r.Window)},
		{name: "min_attempt", usage: "<duration>", set: setDurations(&r.MinAttempt)},
		{name: "budget", usage: "<percent> [<per_second>]", set: func(args []string) error {
			r.Budget = new(Budget)
			if err := setShare(&r.Budget.Percent)(args); err != nil || len(args) == 1 {
				return err
			}
			return setRate(&r.Budget.PerSecond)(args[1:])
		}},
	}
}

func (c *Circuit) words() []keyword {
	return []keyword{
		{name: "threshold", usage: "<n>", set: setNumber(&c.Threshold, 1)},
		{name: "cooldown", usage: "<duration>", set: setDurations(&c.Cooldown)},
		{name: "on", usage: "<class...>", set: setTexts(&c.On)},
		{name: "half_open", usage: "<mode>", set: setText(&c.HalfOpen)},
		{name: "ramp", usage: "<duration>", set: setDurations(&c.Ramp)},
	}
}

func (h *Halt) words() []keyword {
	return []keyword{
		{name: "base", usage: "<duration>", set: setDurations(&h.Base)},
		{name: "max", usage: "<duration>", set: setDurations(&h.Max)},
		{name: "rate_limit", usage: "<duration>", set: setDurations(&h.RateLimit)},
		{name: "overload", usage: "<duration> [<cap>]", set: setDurations(&h.Overload, &h.OverloadCap)},
		{name: "model", usage: "<duration>", set: setDurations(&h.Model)},
		{name: "recheck", usage: "<duration>", set: setDurations(&h.Recheck)},
		{name: "max_cooldown", usage: "<duration>", set: setDurations(&h.MaxCooldown)},
	}
}

func (t *Timeouts) words() []keyword {
	return []keyword{
		{name: "headers", usage: "<duration>", set: setDurations(&t.Headers)},
		{name: "first_token", usage: "<duration>", set: setDurations(&t.FirstToken)},
		{name: "idle", usage: "[content] <duration>", many: true, set: func(args []string) error {
			to := &t.Idle
			if len(args) == 2 {
				if args[0] != "content" {
					return errors.New("write: idle [content] <duration>")
				}
				to = &t.IdleContent
			}
			if *to != 0 {
				return errors.New("already specified")
			}
			return setDurations(to)(args[len(args)-1:])
		}},
		{name: "deadline", usage: "<duration>", set: setDurations(&t.Deadline)},
		{name: "deadline_header", usage: "<field>", set: setText(&t.DeadlineHeader)},
	}
}

func (l *Limits) words() []keyword {
	return []keyword{
		{name: "body", usage: "<size>", set: setSize(&l.Body)},
		{name: "held", usage: "<size>", set: setSize(&l.Held)},
		{name: "max_in_flight", usage: "<n> [queue <n> <wait>]", set: func(args []string) error {
			if err := setNumber(&l.MaxInFlight, 1)(args); err != nil || len(args) == 1 {
				return err
			}
			if len(args) != 4 || args[1] != "queue" {
				return errors.New("write: max_in_flight <n> [queue <n> <wait>]")
			}
			return cmp.Or(setNumber(&l.Queue, 1)(args[2:]), setDurations(&l.QueueWait)(args[3:]))
		}},
	}
}

// providerWord reads a provider block.
func (h *Handler) providerWord() keyword {
	var p *Provider
	return keyword{
		name: "provider", usage: "<name> <base_url>", many: true,
		set: func(args []string) error {
			p = &Provider{Name: args[0], BaseURL: args[1]}
			if slices.ContainsFunc(h.Providers, func(other *Provider) bool { return other.Name == p.Name }) {
				return fmt.Errorf("two providers are named %q", p.Name)
			}
			h.Providers = append(h.Providers, p)
			return p.check()
		},
		block: func(d *caddyfile.Dispenser) error {
			provider := d.Token()
			if err := readBlock(d, fmt.Sprintf("provider %q", p.Name), append(p.words(), classifyWord(&p.Classify)), p.check); err != nil {
				return err
			}
			if err := p.validate(); err != nil {
				return errAt(provider, err)
			}
			return nil
		},
	}
}

// words are the words of a provider that may also stand in a directive with a base_url.
func (p *Provider) words() []keyword {
	return []keyword{
		{name: "keys", block: p.readKeys},
		{name: "account", usage: "<name>", set: setText(&p.Account)},
		{name: "auth", usage: "<scheme> [<field> <value with {key}>]", set: func(args []string) error {
			args = append(args, "", "")
			p.Auth = &Auth{Scheme: args[0], Field: args[1], Value: args[2]}
			return nil
		}},
		{name: "models", block: p.readModels},
		{name: "dialects", usage: "<dialect...>", set: setTexts(&p.Dialects)},
		{name: "vendor", usage: "<name>", set: setText(&p.Vendor)},
		{name: "headroom", usage: "<on|off>", set: setSwitch(&p.Headroom)},
		{name: "header_up", usage: "[+|-]<field> [<value>]", many: true, set: func(args []string) error {
			field, deletes := args[0], strings.HasPrefix(args[0], "-")
			switch {
			case !httpguts.ValidHeaderFieldName(strings.TrimLeft(field, "+-")):
				return fmt.Errorf("%q is not [+|-] and the name of a header field", field)
			case deletes && len(args) > 1:
				return fmt.Errorf("%s deletes the field and takes no value", field)
			}
			if p.HeaderUp == nil {
				p.HeaderUp = new(headers.HeaderOps)
			}
			args = append(args, "")
			return headers.CaddyfileHeaderOp(p.HeaderUp, field, args[1], nil)
		}},
		{name: "transport", usage: "<module>", block: p.readTransport},
	}
}

// readKeys reads lines of <name> <secret>, each perhaps with a block. No error shows what stands after the name.
func (p *Provider) readKeys(d *caddyfile.Dispenser) error {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		k := &Key{Name: d.Val()}
		line := d.Token()
		args := d.RemainingArgs()
		switch {
		case len(args) == 0 && len(k.Name) > longestShownName:
			return errAt(line, errors.New("a key has no secret; write: <name> <secret>"))
		case len(args) == 0:
			return errAt(line, fmt.Errorf("key %q has no secret; write: <name> <secret>", k.Name))
		case len(args) > 1:
			return errAt(line, fmt.Errorf("key %q: a key line is <name> <secret>; quote a secret with spaces", k.Name))
		case slices.ContainsFunc(p.Keys, func(other *Key) bool { return other.Name == k.Name }):
			return errAt(line, fmt.Errorf("two keys are named %q", k.Name))
		}
		k.Secret = args[0]
		p.Keys = append(p.Keys, k)
		if err := k.validate(); err != nil {
			return errAt(line, err)
		}
		if err := readBlock(d, fmt.Sprintf("key %q", k.Name), k.words(), k.validate); err != nil {
			return err
		}
	}
	return nil
}

// longestShownName: a lone word longer than this in place of a key line is more likely a secret whose name was
// forgotten than a name whose secret was.
const longestShownName = 20

func (k *Key) words() []keyword {
	return []keyword{
		{name: "account", usage: "<name>", set: setText(&k.Account)},
		{name: "models", usage: "<pattern...>", set: setTexts(&k.Models)},
		{name: "weight", usage: "<n>", set: setNumber(&k.Weight, 1)},
		{name: "max_in_flight", usage: "<n>", set: setNumber(&k.MaxInFlight, 1)},
	}
}

// readModels reads lines of <asked> [<sent>].
func (p *Provider) readModels(d *caddyfile.Dispenser) error {
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		m := Model{Asked: d.Val()}
		if d.NextArg() {
			m.Sent = d.Val()
		}
		if d.NextArg() {
			return d.Errf("models: too many names for %q; write: <asked> [<sent>]", m.Asked)
		}
		p.Models = append(p.Models, m)
		if err := p.check(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// readTransport reads a transport module's block, as reverse_proxy does.
func (p *Provider) readTransport(d *caddyfile.Dispenser) error {
	name := d.Val()
	id := "http.reverse_proxy.transport." + name
	unm, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		return err
	}
	transport, ok := unm.(http.RoundTripper)
	if !ok {
		return d.Errf("module %s (%T) is not a RoundTripper", id, unm)
	}
	p.TransportRaw = caddyconfig.JSONModuleObject(transport, "protocol", name, nil)
	return nil
}

// classifyWord reads one rule of the operator's own.
func classifyWord(rules *[]Rule) keyword {
	conditions := map[string]bool{"status": true, "code": true, "text": true}
	return keyword{
		name: "classify", usage: "<class> [status <n...>] [code <code...>] [text <words>]", many: true,
		set: func(args []string) error {
			rule := Rule{Class: Class(args[0])}
			condition, empty := "", false
			for _, arg := range args[1:] {
				switch {
				case empty && conditions[arg], condition == "" && !conditions[arg]:
					return fmt.Errorf("unexpected %q; a condition is status, code or text with a value", arg)
				case conditions[arg]:
					condition, empty = arg, true
					continue
				case condition == "status":
					status, err := strconv.Atoi(arg)
					if err != nil {
						return fmt.Errorf("%q is not an HTTP status", arg)
					}
					rule.Status = append(rule.Status, status)
				case condition == "code":
					rule.Code = append(rule.Code, arg)
				case !empty:
					// It would be an alternative, and the words of an unquoted sentence would each fit alone.
					return fmt.Errorf("unexpected %q: quote words that belong together, and write text before each alternative", arg)
				default:
					rule.Text = append(rule.Text, arg)
				}
				empty = false
			}
			if empty {
				return fmt.Errorf("%s has no value", condition)
			}
			*rules = append(*rules, rule)
			return nil
		},
	}
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)
