package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"cloop.dev/cloop/schemas"
)

// Policy is all that a repository says of its own check.
type Policy struct {
	Config *Config
	Rules  *Rules
	// Problems with the files of .cloop, sorted by nothing.
	Problems []schemas.Problem
	// Digest is equal for policies of the same texts.
	Digest [sha256.Size]byte

	builtIn Known
	own     map[string]bool
}

// folder is where a repository says what it wants of its check.
const folder = ".cloop"

// sandboxFile is what a project says of its runs, in the same folder.
const sandboxFile = ".cloop/sandbox.yaml"

// misnamed are the files of the folder that have no effect, unlike what their
// author believes.
func misnamed(root *os.Root) (problems []schemas.Problem) {
	entries, err := fs.ReadDir(root.FS(), folder)
	if err != nil {
		return nil // what cannot be read is told with the files that matter
	}
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		var instead string
		switch path.Ext(name) {
		case ".cue":
			instead = RulesFile
		case ".yaml", ".yml", ".json":
			instead = ConfigFile
			if strings.HasPrefix(entry.Name(), "rule") {
				instead = RulesFile
			}
		}
		if strings.HasPrefix(entry.Name(), "config.") {
			instead = ConfigFile
		}
		if instead == "" || name == ConfigFile || name == RulesFile || name == sandboxFile {
			continue
		}
		problems = append(problems, place{file: name}.problem("", "the file has no effect", "rename it to "+instead+", or remove it"))
	}
	return problems
}

// Elsewhere is the problem with a folder of this kind that lies in a directory of
// the repository; nil where it says nothing of a check.
func Elsewhere(root *os.Root, dir string) *schemas.Problem {
	for _, file := range []string{RulesFile, ConfigFile} {
		name := path.Join(dir, file)
		if _, err := root.Lstat(name); err == nil {
			problem := place{file: name}.problem("", "the file has no effect here: only "+file+" at the top of the repository counts", "move it there")
			problem.Severity = schemas.SeverityWarning
			return &problem
		}
	}
	return nil
}

// Reader reads a file of a repository whole. It waits for nobody and bounds what
// it reads.
type Reader func(root *os.Root, name string) ([]byte, error)

// Load reads the policy of a repository. One without a folder .cloop costs the
// look for it, and has a policy that says nothing.
func Load(root *os.Root, read Reader, builtIn Known) *Policy {
	p := &Policy{Config: &Config{}, Rules: &Rules{}, builtIn: builtIn, own: map[string]bool{}}
	if _, err := root.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return p
	}
	p.Problems = append(p.Problems, misnamed(root)...)
	texts := sha256.New()
	defer func() { texts.Sum(p.Digest[:0]) }()
	if data, ok := p.read(root, read, RulesFile); ok {
		_, _ = fmt.Fprintf(texts, "%s %d\n%s", RulesFile, len(data), data)
		definitions, problems := ParseRules(RulesFile, data, builtIn.Known)
		rules, more := Compile(definitions)
		p.Rules, p.Problems = rules, append(append(p.Problems, problems...), more...)
		for _, definition := range definitions {
			p.own[definition.ID] = true
		}
	}
	if data, ok := p.read(root, read, ConfigFile); ok {
		_, _ = fmt.Fprintf(texts, "%s %d\n%s", ConfigFile, len(data), data)
		config, problems := ParseConfig(ConfigFile, data, p)
		p.Config, p.Problems = config, append(p.Problems, problems...)
		p.Rules.Weigh(config.Severities)
	}
	return p
}

// read returns a file that is there.
func (p *Policy) read(root *os.Root, read Reader, name string) ([]byte, bool) {
	data, err := read(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err != nil {
		if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		p.Problems = append(p.Problems, place{file: name}.problem("", fmt.Sprintf("the file cannot be read: %v", err), "make it a file of its own that everybody may read"))
		return nil, false
	}
	return data, true
}

// Known says whether there is such a rule, of cloop or of the repository.
func (p *Policy) Known(id string) bool { return p.own[id] || p.builtIn.Known(id) }

// Own says whether the rule is the repository's.
func (p *Policy) Own(id string) bool { return p.own[id] }

// Fixed says that nobody can turn the rule off.
func (p *Policy) Fixed(id string) bool { return !p.own[id] && p.builtIn.Fixed(id) }

// JudgeComment says what is wrong with a comment that names a rule which is not
// there, or cannot be turned off; nil: nothing.
func (p *Policy) JudgeComment(i *Ignore) *schemas.Problem {
	message, hint := judgeID(p, i.Rule)
	if message == "" {
		return nil
	}
	problem := place{i.File, i.Line, i.Column}.problem("", message, hint)
	return &problem
}
