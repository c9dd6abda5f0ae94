-- +goose Up

-- Whoever gets this row migrates; another process waits here for the end of
-- this transaction, and then finds it done.
insert into schema_steps (version) values (1);

-- Whose turn it is to migrate what libraries bring.
create table schema_turns (
  name text primary key,
  turns bigint not null
);

create table sources (
  id text primary key check (length(id) = 36),
  key text not null,
  revision text not null,
  lineage text not null default '',
  enabled bigint not null check (enabled in (0, 1)),
  version bigint not null check (version > 0),
  announced text not null default '',
  announced_at bigint not null default 0,
  announcements bigint not null default 0 check (announcements >= 0),
  observed text not null default '',
  observed_at bigint not null default 0,
  tried_at bigint not null default 0,
  trouble text not null default '',
  applied text not null default '',
  applied_tree text not null default '',
  applied_revision text not null default '',
  applied_at bigint not null default 0,
  unmet_since bigint not null default 0,
  follow_up bigint not null default 0 check (follow_up in (0, 1)),
  follow_up_since bigint not null default 0,
  registered_at bigint not null,
  next_check bigint not null,
  check_until bigint not null default 0,
  last_fence bigint not null default 0 check (last_fence >= 0),
  check ((follow_up = 1) = (follow_up_since <> 0)),
  check ((applied = '') = (applied_tree = ''))
);

create index sources_due on sources (next_check, id) where enabled = 1;
create index sources_tried on sources (tried_at, id) where enabled = 1;
create index sources_owed on sources (follow_up_since) where follow_up = 1;

-- One lock for each source, for ever: taken, renewed and freed by comparison.
create table source_locks (
  source text primary key references sources (id),
  owner text not null default '',
  token text not null default '',
  fence bigint not null default 0 check (fence >= 0),
  run text not null default '',
  acquired_at bigint not null default 0,
  renewed_at bigint not null default 0,
  expires_at bigint not null default 0,
  check ((token = '') = (run = '')),
  check ((token = '') = (owner = '')),
  check ((token = '') = (expires_at = 0)),
  check (token = '' or fence > 0)
);

create index source_locks_held on source_locks (expires_at) where token <> '';

create table source_runs (
  id text primary key,
  source text not null references sources (id),
  revision text not null,
  trigger_kind text not null
    check (trigger_kind in ('push', 'reconciler', 'follow_up', 'recovery', 'revision', 'request')),
  trigger_id text not null check (length(trigger_id) between 1 and 128),
  announced text not null,
  fence text not null unique check (length(fence) = 64),
  recovers text not null default '',
  version bigint not null check (version > 0),
  status text not null
    check (status in ('queued', 'running', 'complete', 'unchanged', 'coalesced', 'partial', 'failed')),
  reason text not null default '',
  detail text not null default '' check (length(detail) <= 64),
  attempts bigint not null default 0 check (attempts >= 0),
  token text not null default '',
  seen_announcements bigint not null default 0,
  queued_at bigint not null,
  not_before bigint not null,
  started_at bigint not null default 0,
  ended_at bigint not null default 0,
  head text not null default '',
  tree text not null default '',
  files bigint not null default 0,
  added bigint not null default 0,
  changed bigint not null default 0,
  removed bigint not null default 0,
  bytes bigint not null default 0,
  wire bigint not null default 0,
  refused text not null default '',
  check ((status = 'running') = (token <> '')),
  check ((status in ('queued', 'running')) = (ended_at = 0)),
  check (status <> 'complete' or (head <> '' and tree <> ''))
);

create unique index source_runs_open on source_runs (source) where status in ('queued', 'running');
create unique index source_runs_recovers on source_runs (recovers) where recovers <> '';
create index source_runs_waiting on source_runs (not_before) where status = 'queued';
create index source_runs_history on source_runs (source, queued_at, id);
create index source_runs_ended on source_runs (ended_at) where ended_at <> 0;

-- +goose StatementBegin
create function source_runs_ended_stay() returns trigger language plpgsql as $$
begin
  raise exception 'an ended run log never changes' using errcode = 'restrict_violation';
end;
$$;
-- +goose StatementEnd
create trigger source_runs_ended_stay before update on source_runs
for each row when (old.ended_at <> 0) execute function source_runs_ended_stay();

create table source_deliveries (
  namespace text not null,
  body text not null check (length(body) = 64),
  id text not null default '',
  delivery text not null check (length(delivery) = 64),
  source text not null references sources (id),
  announced text not null,
  run text not null,
  received_at bigint not null,
  primary key (namespace, body)
);

create unique index source_deliveries_id on source_deliveries (namespace, id) where id <> '';
create index source_deliveries_announced on source_deliveries (source, announced);

create table source_requests (
  source text not null references sources (id),
  key text not null check (length(key) between 1 and 128),
  intent text not null check (length(intent) = 64),
  run text not null,
  asked_at bigint not null,
  primary key (source, key)
);

create index source_requests_asked on source_requests (asked_at);

create table source_jobs (
  handler text not null check (length(handler) between 1 and 64),
  key text not null check (length(key) between 1 and 128),
  payload text not null check (length(payload) = 64),
  source text not null references sources (id),
  run text not null,
  revision text not null,
  first_at bigint not null,
  last_at bigint not null,
  primary key (handler, key)
);

create index source_jobs_last on source_jobs (last_at);

create table source_alerts (
  source text not null references sources (id),
  code text not null check (length(code) between 1 and 64),
  subject text not null,
  since bigint not null,
  until bigint not null default 0,
  raised bigint not null check (raised > 0),
  primary key (source, code)
);

create index source_alerts_open on source_alerts (code) where until = 0;
create index source_alerts_until on source_alerts (until) where until <> 0;
