package main

import (
	"encoding/json"
	"fmt"
)

// takePlaces removes from each definition what its rules say in `at`, a keyword
// of the sources that Kubernetes does not have, and returns it: a rule's message
// → the field to change, from the rule's own on.
func takePlaces(definitions map[string]json.RawMessage) (map[string]string, error) {
	places := map[string]string{}
	for plural, text := range definitions {
		var definition any
		if err := json.Unmarshal(text, &definition); err != nil {
			return nil, fmt.Errorf("decode the definition of %s: %w", plural, err)
		}
		if err := placesIn(definition, places); err != nil {
			return nil, fmt.Errorf("the definition of %s: %w", plural, err)
		}
		stripped, err := json.Marshal(definition)
		if err != nil {
			return nil, fmt.Errorf("encode the definition of %s: %w", plural, err)
		}
		definitions[plural] = stripped
	}
	return places, nil
}

func placesIn(node any, places map[string]string) error {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			if err := placesIn(item, places); err != nil {
				return err
			}
		}
	case map[string]any:
		rules, _ := node["x-kubernetes-validations"].([]any)
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			message, _ := fields["message"].(string)
			at, _ := fields["at"].(string)
			// A message is all that tells one breach from another.
			if before, ok := places[message]; ok && before != at {
				return fmt.Errorf("the rules that say %q speak of %s and of %s: let each say its own", message, before, at)
			}
			places[message] = at
			delete(fields, "at")
		}
		for _, child := range node {
			if err := placesIn(child, places); err != nil {
				return err
			}
		}
	}
	return nil
}
