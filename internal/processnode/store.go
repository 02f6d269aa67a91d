package processnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/process"
	"cloop.dev/cloop/internal/removal"
)

// store is the node's directory:
//
//	claims/<namespace>_<name>_<uid>     the data of a PersistentVolumeClaim
//	pods/<namespace>_<name>_<uid>/      a Pod: pod.json is its state,
//	    containers/<name>/              log, termination-log, process.json
//	    volumes/<name>/                 Secrets and emptyDirs, gone with the Pod
type store struct{ dir string }

func (s store) pods() string   { return filepath.Join(s.dir, "pods") }
func (s store) claims() string { return filepath.Join(s.dir, "claims") }
func (s store) lock() string   { return filepath.Join(s.dir, "lock") }

// podDir is a Pod's directory.
type podDir struct{ dir string }

func (s store) pod(pod *corev1.Pod) podDir {
	return podDir{filepath.Join(s.pods(), entryName(pod.Namespace, pod.Name, pod.UID))}
}

// entryNameLimit keeps an entry's name below the 255 bytes of a file's.
const entryNameLimit = 100

// entryName is unique for ever, by its UID; the rest is for people.
func entryName(namespace, name string, uid types.UID) string {
	if len(name) > entryNameLimit {
		name = name[:entryNameLimit]
	}
	return namespace + "_" + name + "_" + string(uid)
}

func (p podDir) state() string                { return filepath.Join(p.dir, "pod.json") }
func (p podDir) volumes() string              { return filepath.Join(p.dir, "volumes") }
func (p podDir) volume(name string) string    { return filepath.Join(p.volumes(), name) }
func (p podDir) container(name string) string { return filepath.Join(p.dir, "containers", name) }
func (p podDir) log(name string) string       { return filepath.Join(p.container(name), "log") }
func (p podDir) termination(name string) string {
	return filepath.Join(p.container(name), "termination-log")
}
func (p podDir) processFile(name string) string {
	return filepath.Join(p.container(name), "process.json")
}

// podRecord is what a node that starts again must know about a Pod.
type podRecord struct {
	UID   types.UID `json:"uid"`
	State podState  `json:"state"`
}

// keepState stores how far a Pod is, before the API hears of it.
func (p podDir) keepState(uid types.UID, state podState) error {
	return replaceJSON(p.state(), podRecord{UID: uid, State: state})
}

// keepProcess stores how to find a container's processes. It is called with
// the mark before they are started, and with the identity after.
func (p podDir) keepProcess(container string, family process.Family) error {
	return replaceJSON(p.processFile(container), family)
}

// forgetProcess is for a container none of whose processes is left.
func (p podDir) forgetProcess(container string) error {
	if err := os.Remove(p.processFile(container)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// killProcesses ends whatever the Pod's containers left, from the records, and
// says how many records there were. A void record is of a machine that lost its
// power, and with it every process.
func (p podDir) killProcesses() (int, error) {
	files, err := filepath.Glob(filepath.Join(p.dir, "containers", "*", "process.json"))
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, file := range files {
		var family process.Family
		err := readJSON(file, &family)
		if err == nil {
			err = family.Kill()
		} else if errors.Is(err, errVoid) {
			err = nil
		}
		if err == nil {
			err = os.Remove(file)
		}
		problems = append(problems, err)
	}
	return len(files), errors.Join(problems...)
}

// removeSecrets ends the Secrets' stay on the disk.
func (p podDir) removeSecrets(pod *corev1.Pod) error {
	var problems []error
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil {
			problems = append(problems, removal.All(p.volume(volume.Name)))
		}
	}
	return errors.Join(problems...)
}

// removeVolumes removes Secrets and emptyDirs; logs stay.
func (p podDir) removeVolumes() error { return removal.All(p.volumes()) }

// keptPods is how many directories of finished Pods stay for whoever wants to
// read their logs.
const keptPods = 100

// recover kills what an earlier run of the node left running, removes the
// volumes of its Pods, and returns the states of those Pods.
func (s store) recover(now time.Time) (map[types.UID]podState, error) {
	entries, err := os.ReadDir(s.pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	states := map[types.UID]podState{}
	for _, entry := range entries {
		pod := podDir{filepath.Join(s.pods(), entry.Name())}
		found, err := pod.killProcesses()
		if err = errors.Join(err, pod.removeVolumes()); err != nil {
			return nil, fmt.Errorf("clean up after Pod %s: %w", entry.Name(), err)
		}
		var record podRecord
		if err := readJSON(pod.state(), &record); err != nil || found == 0 && !record.State.terminal() && record.State.untouched() {
			// The node died before it started anything of this Pod, which can
			// run as if it were new.
			continue
		}
		if !record.State.terminal() {
			record.State.cutShort(ReasonRestarted, "the process node died while the Pod ran; its processes were killed", now)
			if err := pod.keepState(record.UID, record.State); err != nil {
				return nil, err
			}
		}
		states[record.UID] = record.State
	}
	return states, nil
}

// prune removes the oldest directories of finished Pods beyond keptPods. busy
// says which are of Pods that are not finished.
func (s store) prune(busy func(entry string) bool) error {
	entries, err := os.ReadDir(s.pods())
	if err != nil {
		return err
	}
	type aged struct {
		name string
		at   time.Time
	}
	var finished []aged
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && !busy(entry.Name()) {
			finished = append(finished, aged{entry.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(finished, func(a, b aged) int { return a.at.Compare(b.at) })
	var problems []error
	for i := 0; i < len(finished)-keptPods; i++ {
		problems = append(problems, removal.All(filepath.Join(s.pods(), finished[i].name)))
	}
	return errors.Join(problems...)
}

// Clean kills every process that a node started with this directory and left
// behind, and removes what those wrote: volumes and claims. It is for whoever
// removes the directory; the node must not run.
func Clean(dir string) error {
	s := store{dir}
	_, err := s.recover(time.Now())
	return errors.Join(err, removal.All(s.claims()))
}

// errVoid says that a file is no JSON at all, as a loss of power may leave it.
var errVoid = errors.New("the record is void")

func readJSON(file string, value any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !json.Valid(data) {
		return fmt.Errorf("read %s: %w", file, errVoid)
	}
	return json.Unmarshal(data, value)
}

// replaceJSON leaves the old content or the new, whenever the node dies. It does
// not wait for the disk: records are written several times for each Pod, and
// say nothing of a machine that was down meanwhile.
func replaceJSON(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteUnsynced(file, data, 0o600)
}
