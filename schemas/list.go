package schemas

import (
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxLists bounds how deep lists of lists are taken apart.
const maxLists = 8

// flatten takes a list apart, as kubectl does before it applies anything. The
// items of a list of one kind, such as HubPoolList, may leave out what they are.
func flatten(list Document, depth int) ([]Document, []Problem) {
	kind, ofList := strings.CutSuffix(list.Object.GetKind(), "List")
	items, hasItems := list.Object.Object["items"].([]any)
	if !ofList || !hasItems || depth == 0 {
		return []Document{list}, nil
	}
	var documents []Document
	var problems []Problem
	_, node := child(list.Node, "items")
	for i, item := range items {
		at := list.Node
		if node = follow(node); node != nil && i < len(node.Content) {
			at = follow(node.Content[i])
		}
		fields, isObject := item.(map[string]any)
		if !isObject {
			problems = append(problems, syntaxAt(at, list.File, "an item of a list must be an object with apiVersion and kind", ""))
			continue
		}
		if _, named := fields["kind"]; !named && kind != "" {
			fields["apiVersion"], fields["kind"] = list.Object.GetAPIVersion(), kind
		}
		one := Document{Object: &unstructured.Unstructured{Object: fields}, File: list.File, Line: max(at.Line, 1), Node: at}
		if found := typeMeta(one); len(found) > 0 {
			problems = append(problems, found...)
			continue
		}
		inner, found := flatten(one, depth-1)
		documents, problems = append(documents, inner...), append(problems, found...)
	}
	return documents, problems
}

// syntaxAt reports text that is not what it must be.
func syntaxAt(node *yamlv3.Node, file, message, hint string) Problem {
	return Problem{Rule: RuleSyntax, Severity: SeverityError, File: file,
		Line: max(node.Line, 1), Column: max(node.Column, 1), Message: message, Hint: hint}
}
