package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"cloop.dev/cloop/schemas"
)

// Policy is all that a repository says of its own check.
type Policy struct {
	Config *Config
	Rules  *Rules
	// Problems with the files of .cloop, sorted by nothing.
	Problems []schemas.Problem

	builtIn Known
	own     map[string]bool
}

// misnamed files of .cloop would have no effect, unlike what their author
// believes.
var misnamed = map[string]string{
	".cloop/config.yml": ConfigFile, ".cloop/config.json": ConfigFile, ".cloop/config.cue": ConfigFile, ".cloop/check.cue": ConfigFile,
	".cloop/rules.yaml": RulesFile, ".cloop/rules.yml": RulesFile, ".cloop/rules.json": RulesFile,
}

// Reader reads a file of a repository whole. It waits for nobody and bounds what
// it reads.
type Reader func(root *os.Root, name string) ([]byte, error)

// Load reads the policy of a repository. One without a folder .cloop costs the
// look for it, and has a policy that says nothing.
func Load(root *os.Root, read Reader, builtIn Known) *Policy {
	p := &Policy{Config: &Config{}, Rules: &Rules{}, builtIn: builtIn, own: map[string]bool{}}
	if _, err := root.Stat(".cloop"); errors.Is(err, fs.ErrNotExist) {
		return p
	}
	for name, instead := range misnamed {
		if _, err := root.Lstat(name); err == nil {
			p.Problems = append(p.Problems, place{file: name}.problem("", "the file has no effect", "rename it to "+instead))
		}
	}
	if data, ok := p.read(root, read, RulesFile); ok {
		definitions, problems := ParseRules(RulesFile, data, builtIn.Known)
		rules, more := Compile(definitions)
		p.Rules, p.Problems = rules, append(append(p.Problems, problems...), more...)
		for _, definition := range definitions {
			p.own[definition.ID] = true
		}
	}
	if data, ok := p.read(root, read, ConfigFile); ok {
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
