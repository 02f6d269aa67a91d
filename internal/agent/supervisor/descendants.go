package supervisor

import (
	"os"
	"strconv"

	"cloop.dev/cloop/internal/process"
)

// descendants are the live processes below root, parents before children. An
// orphan of root's family is root's own child, because root is its subreaper;
// so none escapes, whatever session or group it made.
func descendants(root int) []process.Identity {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]process.Info{} // parent → children
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Processes end while the directory is read.
		if info, err := process.Lookup(pid); err == nil {
			children[info.Parent] = append(children[info.Parent], info)
		}
	}
	var found []process.Identity
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, info := range children[queue[0]] {
			queue = append(queue, info.PID)
			if !info.Ended {
				found = append(found, info.Identity)
			}
		}
	}
	return found
}
