package hubv1

import "time"

// Project is a Git repository whose commits are run.
type Project struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Remote is the URL that runners clone from.
	Remote string `json:"remote"`
	// DefaultRef is run where a run names no ref.
	DefaultRef string `json:"defaultRef"`
	// ExecutorID is the binding, "pool:<id>"; empty: unbound.
	ExecutorID string    `json:"executorId,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
}

// CreateProjectRequest makes a project.
type CreateProjectRequest struct {
	Name       string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"`
	Remote     string `json:"remote" minLength:"1" maxLength:"2048" doc:"An https URL without user information."`
	DefaultRef string `json:"defaultRef,omitempty" maxLength:"255" doc:"Branch or tag; main where left out."`
}

// BindRequest binds a project to an executor.
type BindRequest struct {
	ExecutorID string `json:"executorId" minLength:"1" maxLength:"255" doc:"pool:<id>"`
}

// ProjectList lists projects by name.
type ProjectList struct {
	Items []Project `json:"items"`
}
