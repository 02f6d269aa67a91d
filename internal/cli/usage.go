package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// groupAnnotation marks commands that only group others.
const groupAnnotation = "cloop.dev/group"

// requireVerbs makes every command that only groups others say which there
// are, and fail, where none or an unknown one is named: a script with a
// misspelt verb must not take help text for success. The others name the
// argument that is missing, or one too many.
func requireVerbs(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		requireVerbs(child)
	}
	if !cmd.HasSubCommands() || cmd.RunE != nil {
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if check == nil || check(cmd, args) == nil {
				return nil
			}
			return usageError(cmd, argumentsError(cmd, args))
		}
		return
	}
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[groupAnnotation] = "true"
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = nil
	cmd.DisableFlagsInUseLine = true
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if err := cmd.Help(); err != nil {
				return err
			}
			return silent(codeNoAnswer)
		}
		return unknownCommand(cmd, args[0])
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	message := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		message += fmt.Sprintf(": did you mean %q", near[0])
	}
	return usageError(cmd, errors.New(message))
}

// placeholder is an argument in a command's usage: a word in capitals that stands
// for itself, neither in brackets nor behind a flag.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z-]*$`)

// argumentsError names the argument that is missing, or one too many.
func argumentsError(cmd *cobra.Command, args []string) error {
	var wanted []string
	allowed := 0
	words := strings.Fields(cmd.Use)[1:]
	for i, word := range words {
		switch {
		case i > 0 && strings.HasPrefix(words[i-1], "-"):
		case placeholder.MatchString(word):
			wanted = append(wanted, word)
			allowed++
		case placeholder.MatchString(strings.Trim(word, "[]")):
			allowed++
		}
	}
	if len(args) < len(wanted) {
		return fmt.Errorf("%s is missing", wanted[len(args)])
	}
	return fmt.Errorf("unexpected argument %q", args[min(allowed, len(args)-1)])
}

// newHelpCommand is cobra's, except that help for what there is not is no help.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND…]",
		Short:       "Show what a command does and takes",
		Annotations: map[string]string{formatsAnnotation: formatText},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || found == nil {
				return unknownCommand(cmd.Root(), args[0])
			}
			if len(rest) > 0 && found.HasAvailableSubCommands() {
				return unknownCommand(found, rest[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// unusable is what a flag's parser says of a value that it cannot use.
var unusable = regexp.MustCompile(`^invalid argument (".*") for ".*?--([a-z-]+)" flag: `)

// flagError says what a flag takes instead of how its parser failed.
func flagError(cmd *cobra.Command, err error) error {
	match := unusable.FindStringSubmatch(err.Error())
	if match == nil {
		return usageError(cmd, err)
	}
	flag := cmd.Flag(match[2])
	if flag == nil {
		return usageError(cmd, err)
	}
	takes, known := map[string]string{
		"int": "a whole number of at most 64 bits", "int32": "a whole number of at most 32 bits", "int64": "a whole number of at most 64 bits",
		"duration": "a duration such as 90s, 5m or 2h", "bool": "true or false", "stringToString": "KEY=VALUE",
	}[flag.Value.Type()]
	if !known {
		return usageError(cmd, err)
	}
	return usageError(cmd, fmt.Errorf("--%s %s: it takes %s", match[2], match[1], takes))
}

// notNegative refuses a number or a duration that can only be a slip.
func notNegative[T int | int32 | int64 | time.Duration](cmd *cobra.Command, flag string, value T) error {
	if value < 0 {
		return usageError(cmd, fmt.Errorf("--%s %v: it takes nothing below 0", flag, value))
	}
	return nil
}

// textOnly marks commands that show nothing which has another format.
func textOnly(commands ...*cobra.Command) {
	for _, cmd := range commands {
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations[formatsAnnotation] = formatText
	}
}
