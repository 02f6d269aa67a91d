package fleet

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/hiddeco/sshsig"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Verification says what of a revision must be signed, and by whom.
type Verification struct {
	// Commit and Tag say which of the two must be signed; both may.
	Commit, Tag bool
	Signers     *Signers
	// Now is when: PGP keys that have expired by then sign nothing. SSH keys may
	// sign what is dated within their time, as Git has it.
	Now time.Time
}

// VerifyMode is the verification that a mode of the API asks for; an empty one is
// of the commit.
func VerifyMode(mode string, signers *Signers, now time.Time) Verification {
	tag := mode == v1alpha1.VerifyTag || mode == v1alpha1.VerifyTagAndHead
	return Verification{Commit: mode != v1alpha1.VerifyTag, Tag: tag, Signers: signers, Now: now}
}

// gitNamespace is what SSH signatures of Git are for.
const gitNamespace = "git"

// maxSigned bounds a commit or tag that is verified, in bytes.
const maxSigned = 1 << 20

// Verify fetches the commit and says who signed it, and the tag, where that is asked
// for: a name and a key for each. ErrUnverified is one that nobody known has signed,
// and everything else ErrSource.
func (g *Git) Verify(ctx context.Context, revision Revision, v Verification) (by string, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	if v.Tag && revision.tag.IsZero() {
		what, remedy := "a commit was followed, not a tag", "follow a tag or a range of versions, or verify the commit alone"
		if revision.Tag != "" {
			what, remedy = fmt.Sprintf("tag %s is a lightweight one, which nobody can sign", revision.Tag), "make it with `git tag --sign`"
		} else if revision.Branch != "" {
			what = "a branch was followed, not a tag"
		}
		return "", g.unverified("tag of "+Short(revision.Commit), errors.New(what), remedy)
	}
	if err := g.hold(ctx, revision, v.Tag); err != nil {
		return "", err
	}
	var all []string
	if v.Tag {
		signed, err := g.signedTag(revision)
		if err != nil {
			return "", err
		}
		by, err := v.check(signed)
		if err != nil {
			return "", g.unverified("tag "+revision.Tag, err, v.remedy("git tag --sign"))
		}
		all = append(all, by)
	}
	if v.Commit {
		signed, err := g.signedCommit(revision)
		if err != nil {
			return "", err
		}
		by, err := v.check(signed)
		if err != nil {
			return "", g.unverified("commit "+Short(revision.Commit), err, v.remedy("git commit --gpg-sign"))
		}
		if len(all) == 0 || all[0] != by {
			all = append(all, by)
		}
	}
	return strings.Join(all, " and "), nil
}

func (v Verification) remedy(command string) string {
	return fmt.Sprintf("have it signed (`%s`) by one of the signers: %s; or add the key of who signed it to them", command, v.Signers)
}

func (g *Git) unverified(what string, cause error, remedy string) error {
	return &fault{kind: ErrUnverified, doing: "verify " + what + " of " + g.url, cause: cause, remedy: remedy}
}

// hold has the clone hold a revision, and its tag where that is needed.
func (g *Git) hold(ctx context.Context, revision Revision, tag bool) error {
	if g.holds(revision, tag) {
		return nil
	}
	if err := g.fetch(ctx, revision); err != nil {
		return err
	}
	if !g.holds(revision, tag) {
		return g.damaged(revision.Commit, errNotCloned)
	}
	return nil
}

func (g *Git) holds(revision Revision, tag bool) bool {
	store := openStore(filepath.Join(g.dir, cloneName))
	defer func() { _ = store.Close() }()
	held, err := store.Reference(fetchedRef)
	if err != nil || held.Hash().String() != revision.Commit || store.HasEncodedObject(held.Hash()) != nil {
		return false
	}
	return !tag || store.HasEncodedObject(revision.tag) == nil
}

// object is a commit or a tag as it is stored, from the clone.
func (g *Git) object(kind plumbing.ObjectType, hash plumbing.Hash) ([]byte, error) {
	store := openStore(filepath.Join(g.dir, cloneName))
	defer func() { _ = store.Close() }()
	stored, err := store.EncodedObject(kind, hash)
	if err != nil && kind == plumbing.CommitObject {
		return nil, g.missing(hash.String(), err)
	}
	if err != nil {
		return nil, g.damaged(hash.String(), err)
	}
	from, err := stored.Reader()
	if err != nil {
		return nil, g.damaged(hash.String(), err)
	}
	data, err := io.ReadAll(io.LimitReader(from, maxSigned+1))
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, g.damaged(hash.String(), err)
	}
	if len(data) > maxSigned {
		return nil, g.unverified(Short(hash.String()), fmt.Errorf("it has more than %d MiB", maxSigned>>20), "write a shorter message")
	}
	if plumbing.ComputeHash(kind, data) != hash {
		return nil, g.damaged(hash.String(), errors.New("what is stored is another object"))
	}
	return data, nil
}

// signed is an object with what its author signed and how.
type signed struct {
	payload, signature []byte
	// at is when the object says that it was made.
	at time.Time
}

// signedCommit takes a commit apart as Git does: the signature is a header, and what
// was signed is the commit without it.
func (g *Git) signedCommit(revision Revision) (signed, error) {
	data, err := g.object(plumbing.CommitObject, plumbing.NewHash(revision.Commit))
	if err != nil {
		return signed{}, err
	}
	var out signed
	signatures, inside, ours := 0, false, false
	for rest := data; len(rest) > 0; {
		line := rest
		if at := bytes.IndexByte(rest, '\n'); at >= 0 {
			line = rest[:at+1]
		}
		switch {
		case inside && line[0] == ' ':
			if ours {
				out.signature = append(out.signature, line[1:]...)
			}
		case bytes.HasPrefix(line, []byte("gpgsig")):
			inside, ours = true, bytes.HasPrefix(line, []byte("gpgsig "))
			if ours {
				signatures++
				out.signature = append(out.signature, line[len("gpgsig "):]...)
			}
		case line[0] == '\n':
			out.payload = append(out.payload, rest...)
			line = rest
		default:
			inside = false
			if bytes.HasPrefix(line, []byte("committer ")) {
				out.at = timeOf(line)
			}
			out.payload = append(out.payload, line...)
		}
		rest = rest[len(line):]
	}
	if signatures > 1 {
		return signed{}, g.unverified("commit "+Short(revision.Commit), errTwoSignatures, "sign it once")
	}
	return out, nil
}

// signedTag takes a tag apart: the signature is at the end of its message. A tag
// names itself and what it is of, and both must be what was followed: who may push
// could call a signed v1 v2.
func (g *Git) signedTag(revision Revision) (signed, error) {
	data, err := g.object(plumbing.TagObject, revision.tag)
	if err != nil {
		return signed{}, err
	}
	lines := bytes.SplitN(data, []byte("\n"), 5)
	if len(lines) < 5 || !bytes.HasPrefix(lines[0], []byte("object ")) || !bytes.HasPrefix(lines[1], []byte("type ")) || !bytes.HasPrefix(lines[2], []byte("tag ")) {
		return signed{}, g.unverified("tag "+revision.Tag, errors.New("its headers cannot be read"), "make it with `git tag --sign`")
	}
	of, kind, name := string(lines[0][len("object "):]), string(lines[1][len("type "):]), string(lines[2][len("tag "):])
	switch {
	case name != revision.Tag:
		return signed{}, g.unverified("tag "+revision.Tag, fmt.Errorf("its signature is for tag %q", name), "make it with `git tag --sign`, by the name that it has")
	case kind != "commit" || of != revision.Commit:
		return signed{}, g.unverified("tag "+revision.Tag, fmt.Errorf("its signature is for %s %s, not for commit %s", kind, Short(of), Short(revision.Commit)), "sign a tag of the commit itself")
	}
	out := signed{payload: data, at: timeOf(lines[3])}
	// As Git has it, the last of several is the signature and the rest is signed.
	for at := 0; at < len(data); {
		if line := data[at:]; bytes.HasPrefix(line, []byte(beginSSH)) || bytes.HasPrefix(line, []byte(beginPGP)) || bytes.HasPrefix(line, []byte(beginX509)) {
			out.payload, out.signature = data[:at], line
		}
		next := bytes.IndexByte(data[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return out, nil
}

// timeOf is the time at the end of an author's line; zero where there is none.
func timeOf(line []byte) time.Time {
	fields := bytes.Fields(line)
	if len(fields) < 3 {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(string(fields[len(fields)-2]), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

const (
	beginSSH  = "-----BEGIN SSH SIGNATURE-----"
	beginPGP  = "-----BEGIN PGP SIGNATURE-----"
	beginX509 = "-----BEGIN SIGNED MESSAGE-----"
)

var (
	errUnsigned      = errors.New("it is not signed")
	errTwoSignatures = errors.New("it has two signatures")
	errNoSignature   = errors.New("its signature cannot be read")
	errChanged       = errors.New("its signature is not for what it says: it was changed after it was signed")
)

// check says who of the signers signed.
func (v Verification) check(s signed) (by string, err error) {
	signature := bytes.TrimSpace(s.signature)
	switch {
	case len(signature) == 0:
		return "", errUnsigned
	case bytes.Count(signature, []byte("-----BEGIN ")) > 1:
		return "", errTwoSignatures
	case bytes.HasPrefix(signature, []byte(beginSSH)):
		return v.Signers.checkSSH(s.payload, signature, s.at)
	case bytes.HasPrefix(signature, []byte(beginPGP)):
		return v.Signers.checkPGP(s.payload, signature, v.Now)
	}
	return "", errors.New("its signature is neither of PGP nor of SSH")
}

func (s *Signers) checkSSH(payload, armored []byte, at time.Time) (by string, err error) {
	signature, err := sshsig.Unarmor(armored)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoSignature, err)
	}
	if signature.Namespace != gitNamespace {
		return "", fmt.Errorf("it is signed with %s for the namespace %q, not for %s", describeKey(signature.PublicKey), signature.Namespace, gitNamespace)
	}
	refusal := ""
	for i := range s.ssh {
		signer := &s.ssh[i]
		if !bytes.Equal(signer.key.Marshal(), signature.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(payload), signature, signer.key, signature.HashAlgorithm, gitNamespace); err != nil {
			return "", fmt.Errorf("%w (%s)", errChanged, signer)
		}
		if refusal = signer.refuses(at); refusal == "" {
			return signer.String(), nil
		}
		refusal = fmt.Sprintf("it is signed by %s, who %s", signer, refusal)
	}
	if refusal != "" {
		return "", errors.New(refusal)
	}
	return "", fmt.Errorf("it is signed with %s, which is no signer's key", describeKey(signature.PublicKey))
}

func (s *Signers) checkPGP(payload, armored []byte, now time.Time) (by string, err error) {
	issuer, err := onlySignature(armored)
	if err != nil {
		return "", err
	}
	signature, entity, err := openpgp.VerifyDetachedSignature(s.pgp, bytes.NewReader(payload), bytes.NewReader(issuer.raw), &packet.Config{Time: func() time.Time { return now }})
	who := issuer.String()
	if entity != nil {
		who = describePGP(entity)
	}
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "", fmt.Errorf("it is signed with %s, which is no signer's key", issuer)
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return "", fmt.Errorf("it is signed by %s, whose key has expired", who)
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return "", fmt.Errorf("it is signed by %s, whose key is revoked", who)
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return "", fmt.Errorf("it is signed by %s, and the signature has expired", who)
	case err != nil:
		return "", fmt.Errorf("%w (%s)", errChanged, who)
	case signature.Hash != crypto.SHA256 && signature.Hash != crypto.SHA384 && signature.Hash != crypto.SHA512 && signature.Hash != crypto.SHA3_256 && signature.Hash != crypto.SHA3_512:
		return "", fmt.Errorf("it is signed by %s with a hash that is out of use", who)
	}
	return who, nil
}

// issuer is who a PGP signature says made it, and the signature.
type issuer struct {
	key uint64
	raw []byte
}

func (i issuer) String() string { return fmt.Sprintf("PGP key %016X", i.key) }

// onlySignature reads a block with one signature: of several the library believes
// the first whose key it knows.
func onlySignature(armored []byte) (issuer, error) {
	block, err := armor.Decode(bytes.NewReader(armored))
	if err != nil || block.Type != openpgp.SignatureType {
		return issuer{}, errNoSignature
	}
	out := issuer{}
	if out.raw, err = io.ReadAll(block.Body); err != nil {
		return issuer{}, errNoSignature
	}
	packets := packet.NewReader(bytes.NewReader(out.raw))
	for found := 0; ; found++ {
		next, err := packets.Next()
		if errors.Is(err, io.EOF) && found > 0 {
			return out, nil
		}
		one, ok := next.(*packet.Signature)
		switch {
		case err != nil || !ok || one.IssuerKeyId == nil:
			return issuer{}, errNoSignature
		case found > 0:
			return issuer{}, errTwoSignatures
		}
		out.key = *one.IssuerKeyId
	}
}
