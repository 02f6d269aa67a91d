package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/internal/secret"
)

// wire speaks the part of Git's protocol version 2 over HTTPS that a fetch of
// one commit needs. Starting git's own transport takes longer than the whole
// exchange. Any answer that it does not expect is an error; the caller then has
// git try.
type wire struct{ client *http.Client }

// answerTimeout bounds a server's silence, before its answer and within.
const answerTimeout = 20 * time.Second

// newWire trusts the certificates of the bundle, or the system's where it is
// nil.
func newWire(bundle []byte) (*wire, error) {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   answerTimeout,
		ResponseHeaderTimeout: answerTimeout,
		DisableCompression:    true, // packs are compressed
		ForceAttemptHTTP2:     true,
	}
	if bundle != nil {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			return nil, errors.New("the file of certificates to trust for Git holds none: write PEM")
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	return &wire{client: &http.Client{
		Transport: transport,
		// Where to follow one is git's to decide.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// resolve asks what the first of the refs that exists points to: the object to
// ask for, and the commit that it is or names.
func (w *wire) resolve(ctx context.Context, remote string, refs []string) (want, commit string, err error) {
	request := packets("command=ls-refs\n", delimiter, "peel\n")
	for _, ref := range refs {
		request = append(request, packets("ref-prefix "+ref+"\n")...)
	}
	answer, err := w.post(ctx, remote, append(request, flush...))
	if err != nil {
		return "", "", err
	}
	defer answer.close()
	found := map[string][2]string{} // ref → object, commit
	for {
		line, kind, err := answer.next()
		if err != nil {
			return "", "", err
		}
		if kind != kindData {
			break
		}
		fields := strings.Fields(string(line))
		if len(fields) < 2 || !isObjectID(fields[0]) {
			return "", "", fmt.Errorf("unexpected line %q in the list of refs", line)
		}
		entry := [2]string{fields[0], fields[0]}
		for _, attribute := range fields[2:] {
			if peeled, ok := strings.CutPrefix(attribute, "peeled:"); ok && isObjectID(peeled) {
				entry[1] = peeled
			}
		}
		found[fields[1]] = entry
	}
	for _, ref := range refs {
		if entry, ok := found[ref]; ok {
			return entry[0], entry[1], nil
		}
	}
	return "", "", errNoRef
}

// fetch writes the pack of the wanted object, one commit deep, and returns the
// commits whose parents were left out.
func (w *wire) fetch(ctx context.Context, remote, want string, pack io.Writer) (shallow []string, err error) {
	request := packets("command=fetch\n", delimiter, "ofs-delta\n", "no-progress\n", "deepen 1\n", "want "+want+"\n", "done\n")
	answer, err := w.post(ctx, remote, append(request, flush...))
	if err != nil {
		return nil, err
	}
	defer answer.close()
	for {
		line, kind, err := answer.next()
		if err != nil {
			return nil, err
		}
		text := strings.TrimSuffix(string(line), "\n")
		commit, isShallow := strings.CutPrefix(text, "shallow ")
		switch {
		case kind == kindDelimiter, kind == kindData && text == "shallow-info":
		case kind == kindData && isShallow && isObjectID(commit):
			shallow = append(shallow, commit)
		case kind == kindData && text == "packfile":
			return shallow, answer.copyPack(pack)
		default:
			return nil, fmt.Errorf("unexpected line %q before the pack", text)
		}
	}
}

// answer is one response, read packet by packet.
type answer struct {
	body   io.ReadCloser
	reader *bufio.Reader
	buffer []byte
	idle   *time.Timer
	cancel context.CancelFunc
}

// post sends one command. A server that is silent for answerTimeout is given
// up, before and within the answer.
func (w *wire) post(ctx context.Context, remote string, body []byte) (*answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(remote, "/")+"/git-upload-pack", bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	request.Header.Set("Accept", "application/x-git-upload-pack-result")
	request.Header.Set("Git-Protocol", "version=2")
	request.Header.Set("User-Agent", "git/2.0 (cloop)")
	response, err := w.client.Do(request)
	if err != nil {
		cancel()
		return nil, secret.SentTo().Error(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/x-git-upload-pack-result" {
		_ = response.Body.Close()
		cancel()
		return nil, fmt.Errorf("the Git server answered %s", secret.SentTo().Line(response.Status))
	}
	return &answer{
		body: response.Body, reader: bufio.NewReaderSize(response.Body, 64<<10), buffer: make([]byte, maxPacket),
		idle: time.AfterFunc(answerTimeout, cancel), cancel: cancel,
	}, nil
}

func (a *answer) close() {
	if a.idle.Stop() {
		// Read to the end, the connection can be used again.
		_, _ = io.CopyN(io.Discard, a.reader, maxPacket)
	}
	_ = a.body.Close()
	a.cancel()
}

// Kinds of packets.
const (
	kindData = iota
	kindFlush
	kindDelimiter
	kindResponseEnd
)

// Packets without data, as they are written.
const (
	flush     = "0000"
	delimiter = "0001"
	maxPacket = 65520
)

// packets frames lines; a delimiter goes as it is.
func packets(lines ...string) []byte {
	var out []byte
	for _, line := range lines {
		if line == delimiter {
			out = append(out, line...)
			continue
		}
		out = fmt.Appendf(out, "%04x%s", len(line)+4, line)
	}
	return out
}

// next reads one packet; the data is valid until the next call.
func (a *answer) next() ([]byte, int, error) {
	a.idle.Reset(answerTimeout)
	if _, err := io.ReadFull(a.reader, a.buffer[:4]); err != nil {
		return nil, 0, fmt.Errorf("read the Git server's answer: %w", err)
	}
	length, err := strconv.ParseUint(string(a.buffer[:4]), 16, 16)
	switch {
	case err != nil || length == 3 || length > maxPacket:
		return nil, 0, fmt.Errorf("the Git server's answer is malformed at %q", a.buffer[:4])
	case length == 0:
		return nil, kindFlush, nil
	case length == 1:
		return nil, kindDelimiter, nil
	case length == 2:
		return nil, kindResponseEnd, nil
	}
	data := a.buffer[:length-4]
	if _, err := io.ReadFull(a.reader, data); err != nil {
		return nil, 0, fmt.Errorf("read the Git server's answer: %w", err)
	}
	if message, ok := bytes.CutPrefix(data, []byte("ERR ")); ok {
		return nil, 0, fmt.Errorf("the Git server says: %s", secret.SentTo().Line(string(message)))
	}
	return data, kindData, nil
}

// Bands of the multiplexed pack.
const (
	bandPack     = 1
	bandProgress = 2
	bandError    = 3
)

// copyPack writes the pack up to the answer's end.
func (a *answer) copyPack(pack io.Writer) error {
	for {
		data, kind, err := a.next()
		switch {
		case err != nil:
			return err
		case kind != kindData:
			return nil
		case len(data) == 0:
			continue
		}
		switch data[0] {
		case bandPack:
			if _, err := pack.Write(data[1:]); err != nil {
				return fmt.Errorf("write the pack: %w", err)
			}
		case bandProgress:
		case bandError:
			return fmt.Errorf("the Git server says: %s", bytes.TrimSpace(data[1:]))
		default:
			return fmt.Errorf("the pack has an unknown band %d", data[0])
		}
	}
}
