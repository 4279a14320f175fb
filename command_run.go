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
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --provider <name|url> --key-env <variable...> [--provider …] [--listen <address>] [--access-log] [--debug] | --demo",
		Short: "A gateway without a config file",
		Long: `
Runs a gateway to one or more providers, which are asked in the order given.

--provider is the base URL of an API, or one of
` + wrapWords(knownNames(), 76) + `

--key-env, after the provider it belongs to, names the environment variable
that holds its key; several keys are several names, with commas or with the flag
repeated. The key itself never stands on the command line or in the config.

Where several providers are given a request goes to those that speak its API
family (OpenAI's, Anthropic's, Gemini's); nothing is translated.

With --demo no account and no key is needed: the gateway's provider is a
pretended one. Its first key is rate limited, its second has no money, its third
answers.

The gateway listens on ` + defaultListen + `, and for an address without a host
on this computer only: whoever reaches it spends your money. Admin API and all
else is as usual; 'caddy llm-failover status' shows the keys. For more than this,
such as HTTPS or asking callers who they are, write a Caddyfile.
`,
		Args: noArguments("a provider belongs after --provider, the name of its key's variable after --key-env"),
		RunE: caddycmd.WrapCommandFuncForCobra(func(fs caddycmd.Flags) (int, error) {
			caddy.TrapSignals()
			if err := runGateway(os.Stdout, gatewayFrom(fs)); err != nil {
				return exitCode(err)
			}
			select {}
		}),
	}
	named := new(gatewayProviders)
	cmd.Flags().VarP(providerFlag{named}, "provider", "p", "A provider's name, or its base URL (may be repeated)")
	cmd.Flags().VarP(keyFlag{named}, "key-env", "k", "The environment variable with the key of the provider before (may be repeated)")
	cmd.Flags().StringP("listen", "l", defaultListen, "Where to listen; without a host on 127.0.0.1")
	cmd.Flags().Bool("demo", false, "Use a pretended provider")
	cmd.Flags().Bool("access-log", false, "Log requests")
	cmd.Flags().BoolP("debug", "v", false, "Log more")
	return cmd
}

// noArguments refuses arguments. They are not shown, as cobra.NoArgs would: one may be a key.
func noArguments(advice string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s takes flags only: %s", cmd.Name(), advice)
		}
		return nil
	}
}

// gatewayProviders are the providers of the command line with the variables of their keys. The flags only collect:
// an error of theirs would be shown with the flag's value, which may be a key by mistake.
type gatewayProviders []gatewayProvider

type gatewayProvider struct {
	name string
	keys []string
}

type (
	providerFlag struct{ all *gatewayProviders }
	keyFlag      struct{ all *gatewayProviders }
)

func (f providerFlag) String() string { return "" }
func (f providerFlag) Type() string   { return "name|url" }
func (f providerFlag) Set(name string) error {
	*f.all = append(*f.all, gatewayProvider{name: name})
	return nil
}

func (f keyFlag) String() string { return "" }
func (f keyFlag) Type() string   { return "variable" }
func (f keyFlag) Set(names string) error {
	if len(*f.all) == 0 {
		*f.all = append(*f.all, gatewayProvider{})
	}
	last := &(*f.all)[len(*f.all)-1]
	for name := range strings.SplitSeq(names, ",") {
		last.keys = append(last.keys, strings.TrimSpace(name))
	}
	return nil
}

// knownProvider is what the gateway's command knows of a vendor: where it answers, the API families it speaks there, and the
// variable in which its own SDK looks for the key.
type knownProvider struct{ baseURL, dialects, env string }

var knownProviders = map[string]knownProvider{
	"openai":      {"https://api.openai.com", "chat responses", "OPENAI_API_KEY"},
	"anthropic":   {"https://api.anthropic.com", "messages", "ANTHROPIC_API_KEY"},
	"gemini":      {"https://generativelanguage.googleapis.com", "gemini", "GEMINI_API_KEY"},
	"deepseek":    {"https://api.deepseek.com", "chat", "DEEPSEEK_API_KEY"},
	"groq":        {"https://api.groq.com/openai/v1", "chat responses", "GROQ_API_KEY"},
	"mistral":     {"https://api.mistral.ai", "chat", "MISTRAL_API_KEY"},
	"openrouter":  {"https://openrouter.ai/api/v1", "chat responses messages", "OPENROUTER_API_KEY"},
	"xai":         {"https://api.x.ai", "chat responses", "XAI_API_KEY"},
	"together":    {"https://api.together.xyz", "chat", "TOGETHER_API_KEY"},
	"fireworks":   {"https://api.fireworks.ai/inference/v1", "chat responses", "FIREWORKS_API_KEY"},
	"cerebras":    {"https://api.cerebras.ai", "chat", "CEREBRAS_API_KEY"},
	"cohere":      {"https://api.cohere.ai/compatibility/v1", "chat", "CO_API_KEY"},
	"nvidia":      {"https://integrate.api.nvidia.com", "chat", "NVIDIA_API_KEY"},
	"huggingface": {"https://router.huggingface.co", "chat", "HF_TOKEN"},
	"moonshot":    {"https://api.moonshot.ai", "chat", "MOONSHOT_API_KEY"},
	"zhipu":       {"https://open.bigmodel.cn/api/paas/v4", "chat", "ZHIPUAI_API_KEY"},
	"dashscope":   {"https://dashscope.aliyuncs.com/compatible-mode/v1", "chat", "DASHSCOPE_API_KEY"},
	"ark":         {"https://ark.cn-beijing.volces.com/api/v3", "chat responses", "ARK_API_KEY"},
	"siliconflow": {"https://api.siliconflow.cn", "chat", "SILICONFLOW_API_KEY"},
	"minimax":     {"https://api.minimax.io", "chat", "MINIMAX_API_KEY"},
}

func knownNames() []string { return slices.Sorted(maps.Keys(knownProviders)) }

// wrapWords lists words in lines no longer than width.
func wrapWords(words []string, width int) string {
	var b strings.Builder
	at := 0
	for i, w := range words {
		switch {
		case i == 0:
		case at+2+len(w) > width:
			b.WriteString(",\n")
			at = 0
		default:
			b.WriteString(", ")
			at += 2
		}
		b.WriteString(w)
		at += len(w)
	}
	return b.String()
}

// provider makes a provider of the flags. The dialects matter only where there is a choice: a lone provider is asked
// for everything.
func (g gatewayProvider) provider(lone bool) (*Provider, error) {
	if g.name == "" {
		return nil, errors.New("--key-env belongs after the --provider whose key it names")
	}
	p, example := new(Provider), "MY_API_KEY"
	if strings.Contains(g.name, "://") {
		if err := checkBaseURL(g.name); err != nil {
			return nil, fmt.Errorf("--provider: %w", err)
		}
		u, err := url.Parse(g.name)
		if err != nil {
			return nil, errors.New("--provider: not a URL") // its error would show all of it
		}
		p.Name, p.BaseURL = strings.ReplaceAll(strings.Trim(u.Host+u.Path, "/"), "/", "-"), g.name
	} else {
		name := vendorNamed(g.name)
		k, ok := knownProviders[name]
		if !ok {
			return nil, g.unknown()
		}
		p.Name, p.BaseURL, example = name, k.baseURL, k.env
		if !lone {
			p.Dialects = strings.Fields(k.dialects)
		}
	}
	if len(g.keys) == 0 {
		return nil, fmt.Errorf("provider %s has no key: name the environment variable that holds it, as in --key-env %s", p.Name, example)
	}
	for _, name := range g.keys {
		if err := checkVariable(p.Name, name, example); err != nil {
			return nil, err
		}
		p.Keys = append(p.Keys, &Key{Name: name, Secret: "{env." + name + "}"})
	}
	return p, nil
}

// What a provider that is not known looks like. Keys have digits, or underscores, or long parts.
var (
	plainWord = regexp.MustCompile(`^[A-Za-z]{1,20}$`)
	localHost = regexp.MustCompile(`^(localhost|[a-z][a-z-]{0,20}:\d+|\d+(\.\d+){3})(:\d+)?(/|$)`)
	otherHost = regexp.MustCompile(`^([a-z0-9-]{1,30}\.)+[a-z]{2,10}(:\d+)?(/|$)`)
)

// unknown says what is wrong with a provider's name. What does not look like one may be a key, and is not shown.
func (g gatewayProvider) unknown() error {
	host, _, _ := strings.Cut(g.name, "/")
	mayBe := "it may be a URL, or " + strings.Join(knownNames(), ", ")
	switch {
	case localHost.MatchString(g.name):
		return fmt.Errorf("--provider %s: a URL begins with http:// or https://, as in http://%s", host, host)
	case otherHost.MatchString(g.name):
		return fmt.Errorf("--provider %s: a URL begins with http:// or https://, as in https://%s", host, host)
	case plainWord.MatchString(g.name):
		return fmt.Errorf("unknown provider %q; %s", g.name, mayBe)
	}
	return errors.New("--provider does not name a provider, and is not for keys; " + mayBe)
}

// variableName is how variables are named. Some vendors' keys could be a variable's name, too, but for small letters.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// checkVariable wants a variable that is set. What does not look like a variable's name may be a key, and is not shown.
func checkVariable(provider, name, example string) error {
	switch {
	case os.Getenv(name) != "":
		return nil
	case variableName.MatchString(name):
		return fmt.Errorf("environment variable %s, for the key of provider %s, is not set", name, provider)
	}
	return fmt.Errorf("--key-env of provider %s does not name a variable that is set; it takes the name, such as %s, and not the key itself", provider, example)
}

// gateway is what the command line says.
type gateway struct {
	named     gatewayProviders
	listen    string
	demo      bool
	accessLog bool
	debug     bool
}

func gatewayFrom(fs caddycmd.Flags) *gateway {
	var named gatewayProviders
	if f, ok := fs.Lookup("provider").Value.(providerFlag); ok {
		named = *f.all
	}
	return &gateway{named, fs.String("listen"), fs.Bool("demo"), fs.Bool("access-log"), fs.Bool("debug")}
}

// config is the gateway's config. It holds the names of secrets only.
func (g *gateway) config() (*caddy.Config, error) {
	listen, err := listenAddress(g.listen)
	if err != nil {
		return nil, err
	}
	var app *caddyhttp.App
	switch {
	case g.demo && len(g.named) > 0:
		return nil, errors.New("--demo has a provider of its own; leave --provider and --key-env out")
	case g.demo:
		app, err = demoApp(listen)
	default:
		app, err = g.app(listen)
	}
	if err != nil {
		return nil, err
	}
	for _, server := range app.Servers {
		server.Protocols = []string{"h1", "h2c"} // Caddy would warn of the others, which need TLS
		if g.accessLog && slices.Contains(server.Listen, listen) {
			server.Logs = new(caddyhttp.ServerLogConfig)
		}
	}
	base := caddy.BaseLog{EncoderRaw: json.RawMessage(withoutCredentials)}
	if g.debug {
		base.Level = zap.DebugLevel.CapitalString()
	}
	persist := false
	return &caddy.Config{
		// The user's own config stays what --resume would resume.
		Admin:   &caddy.AdminConfig{Config: &caddy.ConfigSettings{Persist: &persist}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{caddy.DefaultLoggerName: {BaseLog: base}}},
		AppsRaw: caddy.ModuleMap{"http": caddyconfig.JSON(app, nil)},
	}, nil
}

func (g *gateway) app(listen string) (*caddyhttp.App, error) {
	if len(g.named) == 0 {
		return nil, fmt.Errorf("--provider is needed, or --demo; it may be a URL, or %s", strings.Join(knownNames(), ", "))
	}
	handler := new(Handler)
	for _, named := range g.named {
		p, err := named.provider(len(g.named) == 1)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(handler.Providers, func(o *Provider) bool { return o.Name == p.Name }); i >= 0 {
			if other := handler.Providers[i].BaseURL; other != p.BaseURL {
				return nil, fmt.Errorf("the providers %s and %s would both be named %s; a Caddyfile can name them otherwise", other, p.BaseURL, p.Name)
			}
			return nil, fmt.Errorf("provider %s is given twice; its keys may be given together, as in --key-env ONE,TWO", p.Name)
		}
		handler.Providers = append(handler.Providers, p)
	}
	if err := handler.validate(); err != nil {
		return nil, err
	}
	return &caddyhttp.App{Servers: map[string]*caddyhttp.Server{"gateway": {
		Listen:    []string{listen},
		Routes:    caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{caddyconfig.JSONModuleObject(handler, "handler", "llm_failover", nil)}}},
		AutoHTTPS: &caddyhttp.AutoHTTPSConfig{Disabled: true},
	}}}, nil
}

// withoutCredentials keeps callers' credentials out of all logs, at the places that Caddy does not know of.
const withoutCredentials = `{"format": "filter", "fields": {
	"request>headers>X-Api-Key": {"filter": "delete"},
	"request>headers>Api-Key": {"filter": "delete"},
	"request>headers>X-Goog-Api-Key": {"filter": "delete"},
	"request>headers>Sec-Websocket-Protocol": {"filter": "delete"},
	"request>uri": {"filter": "query", "actions": [
		{"type": "replace", "parameter": "key", "value": "REDACTED"},
		{"type": "replace", "parameter": "api-key", "value": "REDACTED"},
		{"type": "replace", "parameter": "api_key", "value": "REDACTED"},
		{"type": "replace", "parameter": "access_token", "value": "REDACTED"},
		{"type": "replace", "parameter": "authorization", "value": "REDACTED"}
	]}
}}`

// The demo's addresses, as its Caddyfile has them.
const (
	demoListen   = "127.0.0.1:8080"
	demoUpstream = "127.0.0.1:8099"
)

//go:embed examples/demo/Caddyfile
var demoCaddyfile []byte

// demoApp is the demo of the examples, at other addresses.
func demoApp(listen string) (*caddyhttp.App, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	upstream := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(demoCaddyfile, map[string]any{"filename": "demo"})
	if err != nil {
		return nil, err
	}
	adapted = bytes.ReplaceAll(adapted, []byte(demoUpstream), []byte(upstream))
	var config struct {
		Apps struct {
			HTTP *caddyhttp.App `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		return nil, err
	}
	for _, server := range config.Apps.HTTP.Servers {
		if i := slices.Index(server.Listen, demoListen); i >= 0 {
			server.Listen[i] = listen
		}
	}
	return config.Apps.HTTP, nil
}

// runGateway starts the gateway and says how it is used.
func runGateway(w io.Writer, g *gateway) error {
	config, err := g.config()
	if err != nil {
		return err
	}
	listen, err := listenAddress(g.listen)
	if err != nil {
		return err
	}
	if caddy.DefaultAdminListen == adminOff {
		return errors.New("the environment variable CADDY_ADMIN is off, but it is for an address; a gateway without the admin API takes a Caddyfile")
	}
	if err := checkFree(
		wanted{listen, "choose another address with --listen"},
		wanted{caddy.DefaultAdminListen, "that is for the admin API; choose another address with the environment variable CADDY_ADMIN"},
	); err != nil {
		return err
	}
	if err := caddy.Run(config); err != nil {
		return err
	}
	if isOpen(listen) {
		caddy.Log().Warn("whoever can reach the gateway spends your money", zap.String("listen", listen))
	}
	caddy.Log().Info("LLM gateway is running", zap.String("listen", listen))
	_, err = io.WriteString(w, g.usage(listen))
	return err
}

// defaultAdmin is where Caddy's commands look for the admin API if nothing else is said.
const defaultAdmin = "localhost:2019"

// usage says where clients are pointed at, and how the keys are looked at.
func (g *gateway) usage(listen string) string {
	base, socket := clientURL(listen)
	status := "caddy llm-failover status --watch"
	if admin := caddy.DefaultAdminListen; admin != defaultAdmin {
		admin, _, _ = strings.Cut(admin, "|") // a socket's permissions
		status += " --address " + admin
	}
	if g.demo {
		curl := "curl "
		if socket != "" {
			curl += "--unix-socket " + socket + " "
		}
		return fmt.Sprintf(`
The demo is running. In another terminal:

    %s%s/v1/chat/completions -d '{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'
    %s

`, curl, base, status)
	}
	all, speaks := false, ""
	for _, p := range g.named {
		k, known := knownProviders[vendorNamed(p.name)]
		all = all || !known
		speaks += k.dialects + " "
	}
	var b strings.Builder
	b.WriteString("\nThe gateway is running. Point clients at it")
	if socket != "" {
		b.WriteString(", at the socket " + socket)
	}
	b.WriteString("; any API key will do:\n\n")
	for _, c := range []struct{ dialect, path, whose string }{
		{"chat", "/v1", "OpenAI's and those like it"},
		{"messages", "   ", "Anthropic's"},
		{"gemini", "   ", "Gemini's"},
	} {
		if all || strings.Contains(speaks, c.dialect) {
			fmt.Fprintf(&b, "    %s%s  %s\n", base, c.path, c.whose)
		}
	}
	return b.String() + "\nHow its keys are:\n\n    " + status + "\n\n"
}
