package hubv1

import "time"

// Project is a Git repository whose commits are run.
type Project struct {
	ID   string `json:"id" doc:"Id."`
	Name string `json:"name" doc:"Name, unique on the hub."`
	// Index is the project's place in the order in which projects were made, from
	// 0; other clients of the API name it by that.
	Index int64 `json:"index"`
	// Owner is who made the project, as in "user:alice"; empty where that is not
	// known. What a volume keeps of the project is kept for both.
	Owner string `json:"owner,omitempty"`
	// Remote is the URL that runners clone from.
	Remote string `json:"remote"`
	// DefaultRef is run where a run names no ref.
	DefaultRef string `json:"defaultRef"`
	// ExecutorID is the binding, "pool:<id>"; empty: unbound.
	ExecutorID string `json:"executorId,omitempty"`
	// Requirements are what the project's default ref asked of its runners when
	// it was looked at last; nil before that.
	Requirements *ProjectRequirements `json:"requirements,omitempty"`
	// Paused is set while runs of the project wait.
	Paused *Paused `json:"paused,omitempty"`
	// Dropped is the last run that left the queue because it could never be
	// handed out.
	Dropped   *Dropped  `json:"dropped,omitempty"`
	CreatedAt time.Time `json:"createdAt" doc:"When it was made."`
}

// Requirements are what .cloop/sandbox.yaml asks of a project's runners.
type Requirements struct {
	// Capabilities that the pool must declare, with the same value.
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	// Labels that the pool must have, with the same value.
	Labels map[string]string `json:"labels,omitempty"`
}

// Empty says whether nothing is asked for.
func (r Requirements) Empty() bool { return len(r.Capabilities) == 0 && len(r.Labels) == 0 }

// ProjectRequirements are a project's requirements at one commit.
type ProjectRequirements struct {
	// Commit that they were read at; empty where the repository could not be
	// asked.
	Commit string `json:"commit,omitempty"`
	Requirements
	// Unknown says why they could not be read; empty where they were.
	Unknown string    `json:"unknown,omitempty"`
	At      time.Time `json:"at" doc:"When the hub read them."`
}

// PausedForCapacity is why runs of a project wait.
const PausedForCapacity = "pool_capacity"

// Paused says that runs of a project wait.
type Paused struct {
	// Reason is PausedForCapacity.
	Reason string `json:"reason"`
	// Runs is how many wait.
	Runs int32 `json:"runs"`
	// Message says in a sentence why the oldest waits.
	Message string `json:"message"`
}

// Dropped is a run that left the queue without having been handed out.
type Dropped struct {
	Run    string    `json:"run" doc:"Id of the run."`
	Reason string    `json:"reason" doc:"Why it left the queue."`
	At     time.Time `json:"at" doc:"When it did."`
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

// ExecutorRequest binds a project to an executor, as BindRequest does, for
// callers that spell it in another way.
type ExecutorRequest struct {
	ExecutorID string `json:"executor_id" minLength:"1" maxLength:"255" doc:"pool:<id>"`
}

// ProjectList lists projects by name.
type ProjectList struct {
	Items []Project `json:"items"`
}
