package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// OAuth says where the token of SASL's OAUTHBEARER comes from: one of TokenFile, TokenCommand and
// TokenURL.
type OAuth struct {
	// TokenFile holds the token. It is read anew for each login.
	TokenFile string `yaml:"token_file" json:"token_file,omitempty"`
	// TokenCommand is a program, with its arguments separated by spaces, that prints the token. It is run
	// for each login.
	TokenCommand string `yaml:"token_command" json:"token_command,omitempty"`
	// TokenURL is where a token is asked for with the client's credentials (RFC 6749, section 4.4). It is
	// used until a fifth of its lifetime is left. The secret is in ClientSecretFile or in the environment
	// variable ClientSecretEnv.
	TokenURL         string `yaml:"token_url" json:"token_url,omitempty"`
	ClientID         string `yaml:"client_id" json:"client_id,omitempty"`
	ClientSecretFile string `yaml:"client_secret_file" json:"client_secret_file,omitempty"`
	ClientSecretEnv  string `yaml:"client_secret_env" json:"client_secret_env,omitempty"`
	ClientSecret     Secret `yaml:"client_secret" json:"-"`
	Scope            string `yaml:"scope" json:"scope,omitempty"`
}

func (o *OAuth) check() error {
	switch {
	case count(o.TokenFile != "", o.TokenCommand != "", o.TokenURL != "") != 1:
		return errors.New("sasl: oauthbearer needs one of token_file, token_command and token_url")
	case o.TokenURL == "":
		return nil
	case o.ClientID == "":
		return errors.New("sasl: token_url needs a client_id")
	case count(o.ClientSecretFile != "", o.ClientSecretEnv != "", o.ClientSecret.reveal() != "") != 1:
		return errors.New("sasl: token_url needs one of client_secret_file and client_secret_env")
	}
	return nil
}

// tokens gets tokens for the connections of a client.
type tokens struct {
	cfg  OAuth
	now  func() time.Time
	http *http.Client
	// held is the token that was asked for last, in a channel of one element: who has it out is the one who
	// asks, and others wait for it.
	held chan heldToken
}

type heldToken struct {
	token Secret
	until time.Time
}

const tokenTimeout = 10 * time.Second

func newTokens(cfg OAuth) *tokens {
	t := &tokens{cfg: cfg, now: time.Now, http: &http.Client{Timeout: tokenTimeout}, held: make(chan heldToken, 1)}
	t.held <- heldToken{}
	return t
}

func (t *tokens) get(ctx context.Context) (Secret, error) {
	switch {
	case t.cfg.TokenFile != "":
		s, err := readSecret("token", Secret{}, t.cfg.TokenFile, "")
		return trimmed(s), err
	case t.cfg.TokenCommand != "":
		return t.run(ctx)
	}
	var held heldToken
	select {
	case held = <-t.held:
	case <-ctx.Done():
		return Secret{}, ctx.Err()
	}
	defer func() { t.held <- held }()
	if held.token.reveal() != "" && t.now().Before(held.until) {
		return held.token, nil
	}
	fresh, err := t.ask(ctx)
	if err != nil {
		return Secret{}, fmt.Errorf("token from %s: %w", t.cfg.TokenURL, err)
	}
	held = fresh
	return held.token, nil
}

func trimmed(s Secret) Secret { return NewSecret(strings.TrimSpace(s.reveal())) }

// run runs the command. What it prints elsewhere than to its standard output is in the error; the token is
// not.
func (t *tokens) run(ctx context.Context) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	args := strings.Fields(t.cfg.TokenCommand)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return Secret{}, fmt.Errorf("token_command %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	s, err := nonempty("token", "what token_command "+args[0]+" printed", string(out))
	return trimmed(s), err
}

func (t *tokens) ask(ctx context.Context) (heldToken, error) {
	secret, err := readSecret("client secret", t.cfg.ClientSecret, t.cfg.ClientSecretFile, t.cfg.ClientSecretEnv)
	if err != nil {
		return heldToken{}, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.cfg.Scope != "" {
		form.Set("scope", t.cfg.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return heldToken{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(t.cfg.ClientID), url.QueryEscape(secret.reveal()))
	asked := t.now()
	resp, err := t.http.Do(req)
	if err != nil {
		return heldToken{}, err
	}
	defer resp.Body.Close()
	var body struct {
		Token       string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&body)
	switch {
	case resp.StatusCode != http.StatusOK:
		return heldToken{}, fmt.Errorf("status %s: %s %s", resp.Status, body.Error, body.Description)
	case err != nil:
		return heldToken{}, fmt.Errorf("the answer is not JSON: %w", err)
	case body.Token == "":
		return heldToken{}, errors.New("the answer holds no access_token")
	}
	return heldToken{
		token: NewSecret(body.Token), until: asked.Add(time.Duration(body.ExpiresIn) * time.Second * 4 / 5),
	}, nil
}
