package main

import "maps"

// Names and keys as apimachinery's validation has them. Some lengths of its
// parts are beyond a regular expression that editors and Go read alike.
const (
	metadataLabel     = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
	metadataSubdomain = metadataLabel + `(\.` + metadataLabel + ")*"
	metadataQualified = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)

// metadataSchema describes metav1.ObjectMeta, which no definition carries. A
// null is what an absent field is. name is what the kind itself says of
// metadata.name, and may be nil.
func metadataSchema(name jsonObject) jsonObject {
	text := func(description string) jsonObject {
		return jsonObject{"type": []any{"string", "null"}, "description": description}
	}
	with := func(schema jsonObject, more jsonObject) jsonObject {
		schema = maps.Clone(schema)
		maps.Copy(schema, more)
		return schema
	}
	number := func(description string) jsonObject {
		return jsonObject{"type": []any{"integer", "null"}, "description": description}
	}
	moment := func(description string) jsonObject {
		return with(text(description), jsonObject{"format": "date-time"})
	}
	full := with(text("Name of the object, one of its kind in a namespace."), jsonObject{"maxLength": 253, "pattern": "^(" + metadataSubdomain + ")?$"})
	if name != nil {
		full["allOf"] = []any{name}
	}
	given := func(field string) jsonObject {
		return jsonObject{"required": []any{field}, "properties": jsonObject{field: jsonObject{"type": "string", "minLength": 1}}}
	}
	keys := jsonObject{"maxLength": 317, "pattern": "^(" + metadataSubdomain + "/)?" + metadataQualified + "$"}
	const label = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
	anyCase := with(keys, jsonObject{"pattern": "^(" + label + `(\.` + label + ")*/)?" + metadataQualified + "$"})
	return jsonObject{
		"type":                 "object",
		"description":          "What every Kubernetes object says of itself.",
		"additionalProperties": false,
		"anyOf":                []any{given("name"), given("generateName")},
		"properties": jsonObject{
			"name": full,
			"generateName": with(text("Beginning of a name that the server completes, for kubectl create. Ignored beside name."),
				jsonObject{"maxLength": 253, "pattern": "^(" + metadataSubdomain + "-?)?$"}),
			"namespace": with(text("Namespace of the object. Absent: the one that it is applied to."),
				jsonObject{"maxLength": 63, "pattern": "^(" + metadataLabel + ")?$"}),
			"labels": jsonObject{
				"type": []any{"object", "null"}, "description": "What selectors select by.", "propertyNames": keys,
				"additionalProperties": jsonObject{"type": []any{"string", "null"}, "maxLength": 63, "pattern": "^(" + metadataQualified + ")?$"},
			},
			"annotations": jsonObject{
				"type": []any{"object", "null"}, "description": "What tools and people note on the object.", "propertyNames": anyCase,
				"additionalProperties": jsonObject{"type": []any{"string", "null"}},
			},
			"finalizers": jsonObject{
				"type": []any{"array", "null"}, "description": "Who must let go before the object is removed.",
				"items": with(jsonObject{"type": "string"}, keys),
			},
			"ownerReferences":            ownerReferences(),
			"creationTimestamp":          moment("Written by the server."),
			"deletionTimestamp":          moment("Written by the server."),
			"deletionGracePeriodSeconds": number("Written by the server."),
			"generation":                 with(number("Written by the server."), jsonObject{"minimum": 0}),
			"managedFields":              jsonObject{"type": []any{"array", "null"}, "description": "Written by the server."},
			"resourceVersion":            text("Written by the server."),
			"selfLink":                   text("Written by old servers."),
			"uid":                        text("Written by the server."),
		},
	}
}

func ownerReferences() jsonObject {
	required := jsonObject{"type": "string", "minLength": 1}
	flag := jsonObject{"type": []any{"boolean", "null"}}
	return jsonObject{
		"type": []any{"array", "null"}, "description": "Objects with which this one is removed.",
		"items": jsonObject{
			"type": "object", "additionalProperties": false,
			"required": []any{"apiVersion", "kind", "name", "uid"},
			"properties": jsonObject{
				"apiVersion": required, "kind": required, "name": required, "uid": required,
				"controller": flag, "blockOwnerDeletion": flag,
			},
		},
	}
}
