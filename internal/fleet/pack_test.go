package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// noise is text that does not compress.
func noise(length int) string {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, length)
	for i := range out {
		out[i] = byte(' ' + random.IntN(90))
	}
	return string(out)
}

// A pack may come to a thousand times what is sent of it: nothing of one that does is
// made, neither of a commit's nor of that of all history.
func TestPacksThatComeToTooMuch(t *testing.T) {
	defer fleet.SetPackBounds(1<<20, 1<<20, 3<<20, 100)()
	alike := map[string]string{}
	for i := range 8 {
		alike[fmt.Sprintf("f%d", i)] = noise(1_000_000) + fmt.Sprint(i)
	}
	many := map[string]string{}
	for i := range 120 {
		many[fmt.Sprintf("f%d", i)] = fmt.Sprint(i)
	}
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"a long file":            {map[string]string{"a": strings.Repeat("0", 5<<20)}, "one of its objects has 5 MiB, more than 1 MiB"},
		"files of one another":   {alike, "its objects have more than 3 MiB"},
		"many small files":       {many, "objects, more than 100"},
		"many files that are ok": {map[string]string{"a": noise(1_000_000), "b": noise(900_000)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, hidden := range []bool{false, true} {
				server := serve(t)
				server.Commit(repository, map[string]string{"pool.yaml": "good"})
				commit := server.Commit(repository, test.files)
				ref := fleet.Ref{}
				if hidden {
					// The server does not give out what no branch is at: all is fetched.
					removed := map[string]string{}
					for file := range test.files {
						removed[file] = fleettest.Removed
					}
					server.Commit(repository, removed)
					ref.Commit = commit
				}
				git := open(t, server, t.TempDir(), fleet.Auth{})
				before := server.Fetches()
				_, err := git.Checkout(t.Context(), ref)
				if test.says == "" {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				wantSource(t, err, "the repository is too large: ", test.says, "move what is no fleet definition to another repository")
				if fetches := server.Fetches() - before; !hidden && fetches != 1 {
					t.Errorf("it is fetched %d times", fetches)
				}
			}
		})
	}
}

// What is refused is not made, whatever it would be.
func TestALongFileTakesNoMemory(t *testing.T) {
	server := serve(t)
	server.Commit(repository, map[string]string{"a": strings.Repeat("0", 65<<20)})
	git := open(t, server, t.TempDir(), fleet.Auth{})
	keepsTo(t, 16<<20, time.Minute, func() {
		_, err := git.Checkout(t.Context(), fleet.Ref{})
		wantSource(t, err, "one of its objects has 65 MiB, more than 64 MiB")
	})
}

// What is let in takes some memory, also where it is made of one another: of the bounds
// an eighth, since hashes take the race detector long.
func TestTheLongestFilesTakeSomeMemory(t *testing.T) {
	defer fleet.SetPackBounds(8<<20, 4<<20, 64<<20, 1000)()
	for name, test := range map[string]struct {
		length, files int
		says          string
	}{
		"one":                  {8 << 20, 1, ""},
		"of one another":       {4<<20 - 100, 3, ""},
		"of one another, long": {5 << 20, 3, "one of its objects has 5 MiB, more than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			server, long, files := serve(t), noise(1<<16), map[string]string{}
			long = strings.Repeat(long, 1+test.length>>16)[:test.length]
			for i := range test.files {
				files[fmt.Sprintf("f%d", i)] = strings.Repeat("x", i) + long
			}
			server.Commit(repository, files)
			keepsTo(t, 384<<20/8, time.Minute, func() {
				_, err := open(t, server, t.TempDir(), fleet.Auth{}).Checkout(t.Context(), fleet.Ref{})
				if test.says != "" {
					wantSource(t, err, test.says)
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What a fetch of a new commit takes.
func BenchmarkFetch(b *testing.B) {
	for name, count := range map[string]int{"small": 100, "large": 2_000} {
		b.Run(name, func(b *testing.B) {
			server := fleettest.Serve(b)
			server.Create(repository)
			commits := [2]string{server.Commit(repository, manyPools(count)), server.Commit(repository, map[string]string{"a": "b"})}
			git, err := fleet.OpenGit(b.TempDir(), server.URL(repository), fleet.Auth{CABundle: server.CABundle()})
			if err != nil {
				b.Fatal(err)
			}
			server.SetBranch(repository, "other", commits[0])
			for i := 0; b.Loop(); i++ {
				tree, err := git.Checkout(b.Context(), fleet.Ref{Commit: commits[i%2]})
				if err != nil {
					b.Fatal(err)
				}
				_ = tree.Close()
			}
		})
	}
}
