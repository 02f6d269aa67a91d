package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

const killSignal = syscall.SIGKILL

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}()

func lengthOf(list client.ObjectList) int { return meta.LenList(list) }

func resumeFrom(resourceVersion string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: resourceVersion}
}

// childOf finds the process with the lowest id whose parent is pid, whose
// command line contains words and whose environment contains variable; 0 when
// there is none.
func childOf(pid int, words, variable string) (int, error) {
	if pid == 0 {
		return 0, nil
	}
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	lowest := 0
	for _, file := range children {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended meanwhile
		}
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			if procContains(child, "cmdline", words) && procContains(child, "environ", variable) && (lowest == 0 || child < lowest) {
				lowest = child
			}
		}
	}
	return lowest, nil
}

// procContains says whether a file of a process that is still there contains a
// text, taking the zero bytes between its parts for spaces.
func procContains(pid int, file, text string) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return err == nil && strings.Contains(strings.ReplaceAll(string(content), "\x00", " "), text)
}
