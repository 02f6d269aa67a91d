package clustertest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long the API gets for what takes it milliseconds; it is for
// machines that do other things as well. poll is how often it is asked.
const (
	patience = time.Minute
	poll     = 20 * time.Millisecond
)

// nameLength keeps a test's part of a namespace's name well below 63.
const nameLength = 40

// Namespace makes a namespace named after the test and waits for its default
// ServiceAccount, without which no Pod is admitted. It is deleted, without
// waiting, when the test ends.
func Namespace(t testing.TB, config *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namePrefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Logf("delete namespace %s: %v", namespace.Name, err)
		}
	})
	wait(ctx, t, "the default ServiceAccount of "+namespace.Name, func() error {
		_, err := client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return namespace.Name
}

// namePrefix turns a test's name into the beginning of a namespace's.
func namePrefix(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, strings.TrimPrefix(test, "Test"))
	name = strings.Trim(name, "-")
	if len(name) > nameLength {
		name = strings.Trim(name[:nameLength], "-")
	}
	return name + "-"
}

func wait(ctx context.Context, t testing.TB, what string, ask func() error) {
	t.Helper()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		case <-time.After(poll):
		}
	}
}
