// Package problem makes the hub's problem documents: one table holds each
// code's HTTP status, title and remedy, so that no refusal spells them again.
//
// In goes a code and one sentence about the case at hand; out comes a
// *hubv1.Problem, which is the error that store and api return. The sentence
// must never hold a credential.
package problem

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
)

type kind struct {
	status int
	title  string
	remedy string
}

var kinds = map[hubv1.Code]kind{
	hubv1.CodeInvalid:            {http.StatusUnprocessableEntity, "The request is not valid", "correct the named fields and send it again"},
	hubv1.CodeUnauthenticated:    {http.StatusUnauthorized, "The credential is not accepted", "send a live token for this part of the API as a bearer token"},
	hubv1.CodeForbidden:          {http.StatusForbidden, "Not allowed", "ask somebody with access.manage for a role that has the permission"},
	hubv1.CodeNotFound:           {http.StatusNotFound, "There is no such thing", "check the name; the list of the same kind shows what there is"},
	hubv1.CodeMethodNotAllowed:   {http.StatusMethodNotAllowed, "Not with this method", "use a method that the answer's Allow names"},
	hubv1.CodeConflict:           {http.StatusConflict, "The request conflicts with what is there", "look at what is there and decide again"},
	hubv1.CodePreconditionFailed: {http.StatusPreconditionFailed, "It has changed since it was read", "read it again and repeat the change"},
	hubv1.CodePoolExists:         {http.StatusConflict, "The pool exists", "update it, or choose another name"},
	hubv1.CodePoolManagedByGit:   {http.StatusConflict, "Git owns the pool", "change the file in the fleet repository and merge it, or set it aside for a time with --override REASON"},
	hubv1.CodePoolAtMaximum:      {http.StatusConflict, "The pool is at its maximum", "wait for a runner to retire, or raise the pool's maxRunners"},
	hubv1.CodePoolCordoned:       {http.StatusConflict, "The pool is cordoned", "uncordon it once the reason is gone"},
	hubv1.CodePoolRevoked:        {http.StatusConflict, "The pool is revoked or on its way there", "create it again, or bind the project to another pool"},
	hubv1.CodeRotationUnfinished: {http.StatusConflict, "The rotation cannot be finished yet", "do what each of them needs and finish again, or finish with --force, which stops the runs of the older credentials' runners"},
	hubv1.CodeHoldsUnknown:       {http.StatusConflict, "Nobody's volume", "start the runner on an emptied volume"},
	hubv1.CodeTokenRedeemed:      {http.StatusConflict, "The token has been redeemed", "mint with another key"},
	hubv1.CodeTokenRefused:       {http.StatusUnauthorized, "The token is not accepted", "start another runner: a token enrolls once, before it expires"},
	hubv1.CodeRunnerRetired:      {http.StatusGone, "The runner is retired", "stop it; its work goes on elsewhere"},
	hubv1.CodeRunNotHeld:         {http.StatusConflict, "The runner does not hold the run", "stop the command: the run is settled or another runner has it"},
	hubv1.CodeLogOffset:          {http.StatusConflict, "The log goes on from another offset", "send on from the offset that is given"},
	hubv1.CodeLogRemoved:         {http.StatusGone, "The log was removed", "run it again for a new log; retention.logs of the hub's configuration says how long logs are kept"},
	hubv1.CodeProjectUnbound:     {http.StatusConflict, "The project is bound to no pool", "bind it with `cloop project bind`"},
	hubv1.CodeAudience:           {http.StatusForbidden, "Not in the pool's audience", "ask the pool's owner to add you to its audience"},
	hubv1.CodeOwner:              {http.StatusForbidden, "The pool's owner may not read the project", "give the owner a role with project.read for the project (`cloop hub role give`), give the pool another owner or none, or bind the project to another pool"},
	hubv1.CodeTooLarge:           {http.StatusRequestEntityTooLarge, "The request is too large", "make it shorter, or send it in smaller parts"},
	hubv1.CodeQueueFull:          {http.StatusConflict, "Too many runs wait", "wait until some of them have started, or cancel those that nobody needs (`cloop run list`, `cloop run cancel`); whoever runs the hub can raise limits.waiting of its configuration"},
	hubv1.CodeTooSlow:            {http.StatusRequestTimeout, "The request took too long to arrive", "send it again; where it is never quick enough, look at the network and at what stands before the hub"},
	hubv1.CodeMediaType:          {http.StatusUnsupportedMediaType, "The body is of another type", "send JSON as Content-Type: application/json, and the chunks of a log as application/octet-stream"},
	hubv1.CodeRateLimited:        {http.StatusTooManyRequests, "Too many requests", "wait as long as Retry-After says, and ask less often"},
	hubv1.CodeTooManyWatches:     {http.StatusTooManyRequests, "Too many watches", "end those that nobody reads, or use another token for the others; limits.watches of the hub's configuration says how many"},
	hubv1.CodeUnavailable:        {http.StatusServiceUnavailable, "The hub cannot answer now", "try again in a moment"},
	hubv1.CodeStorageUnavailable: {http.StatusServiceUnavailable, "The hub's storage does not work", "whoever runs the hub must give it back its data directory or its PostgreSQL server, with room on the disk; it goes on by itself then"},
	hubv1.CodeStorageDamaged:     {http.StatusInternalServerError, "The hub's database is damaged", "whoever runs the hub must put a backup in its place: docs/operate.md, A damaged database"},
	hubv1.CodeInternal:           {http.StatusInternalServerError, "The hub failed", "try again; the hub's log has the cause"},

	hubv1.CodeRefNotFound:          {http.StatusUnprocessableEntity, "There is no such ref", "push it, or name another branch, tag or full commit"},
	hubv1.CodeRequirementsInvalid:  {http.StatusUnprocessableEntity, "The project's requirements are not valid", "correct .cloop/sandbox.yaml, push it and try again"},
	hubv1.CodeWaitingForCapacity:   {http.StatusConflict, "No runner is free at once", "leave noWaitForCapacity (--no-wait-for-capacity) out and the run waits in the queue; minRunners of the ExecutorPool keeps runners ready"},
	hubv1.CodeMemberTooOld:         {http.StatusServiceUnavailable, "A member of the hub is too old", "upgrade or stop that member, `cloop hub doctor` names it, and try again"},
	hubv1.CodePreconditionRequired: {http.StatusPreconditionRequired, "The change needs an If-Match", "read it and send its ETag as If-Match, or If-Match: * to overwrite whatever it is"},
	hubv1.CodeRequirementsUnmet:    {http.StatusConflict, "The pool does not meet the project's requirements", "bind the project to a pool that does, or declare it on this one if its runners have it (capabilities and labels of the pool)"},
}

// New is a problem of the code. Format and arguments make its detail: what was
// refused and why, in one sentence without a full stop.
func New(code hubv1.Code, format string, args ...any) *hubv1.Problem {
	k, known := kinds[code]
	if !known {
		k = kinds[hubv1.CodeInternal]
	}
	return &hubv1.Problem{
		Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...), Code: code, Remedy: k.remedy,
	}
}

// Refusal is New for a failure of the hub's own that is known to have changed
// nothing.
func Refusal(code hubv1.Code, format string, args ...any) *hubv1.Problem {
	p := New(code, format, args...)
	p.Unchanged = true
	return p
}

// OfStatus is the code that stands for an HTTP status where nothing more is
// known.
func OfStatus(status int) hubv1.Code {
	switch status {
	case http.StatusUnauthorized:
		return hubv1.CodeUnauthenticated
	case http.StatusForbidden:
		return hubv1.CodeForbidden
	case http.StatusNotFound:
		return hubv1.CodeNotFound
	case http.StatusMethodNotAllowed:
		return hubv1.CodeMethodNotAllowed
	case http.StatusConflict:
		return hubv1.CodeConflict
	case http.StatusPreconditionFailed:
		return hubv1.CodePreconditionFailed
	case http.StatusPreconditionRequired:
		return hubv1.CodePreconditionRequired
	case http.StatusRequestEntityTooLarge:
		return hubv1.CodeTooLarge
	case http.StatusRequestTimeout:
		return hubv1.CodeTooSlow
	case http.StatusUnsupportedMediaType:
		return hubv1.CodeMediaType
	case http.StatusTooManyRequests:
		return hubv1.CodeRateLimited
	case http.StatusServiceUnavailable:
		return hubv1.CodeUnavailable
	}
	if status >= 500 {
		return hubv1.CodeInternal
	}
	return hubv1.CodeInvalid
}

// Codes lists every code, by name.
func Codes() []hubv1.Code { return slices.Sorted(maps.Keys(kinds)) }

// Known says whether the code has a status, a title and a remedy.
func Known(code hubv1.Code) bool {
	_, known := kinds[code]
	return known
}
