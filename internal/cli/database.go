package cli

import (
	"errors"
	"fmt"
	"os"

	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

// envDatabaseURL names the hub's database where no flag does.
const envDatabaseURL = "CLOOP_DATABASE_URL"

// databaseURL is where the hub's database is; empty for the one in its data
// directory. A URL with a password comes from a file or the environment: anybody
// on the machine can read a command line.
func (a *app) databaseURL(flag, file string) (secret.String, error) {
	const what = "the database URL"
	switch env := os.Getenv(envDatabaseURL); {
	case flag != "" && file != "":
		return secret.String{}, errors.New("two databases: give --database-url or --database-url-file")
	case flag != "" && store.HasPassword(flag):
		return secret.String{}, fmt.Errorf("the URL of --database-url holds a password, which everybody on this machine could read: give the URL in a file (--database-url-file) or in %s, or leave the password to a PGPASSFILE", envDatabaseURL)
	case flag != "":
		return secret.New(flag), nil
	case file != "":
		return a.readSecret(what, file)
	case env != "":
		return oneLineSecret(what, envDatabaseURL, []byte(env))
	}
	return secret.String{}, nil
}
