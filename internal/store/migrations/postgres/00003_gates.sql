-- +goose Up

insert into schema_steps (version) values (3);

-- A process that takes entries of the inbox. Its entries are handed out again
-- when it is gone: their owner then names nobody, by the constraint below.
create table inbox_owners (
  owner text primary key check (length(owner) = 32),
  expires_at bigint not null check (expires_at > 0)
);

-- The inbox's size, in parts, so that requests that are recorded at the same
-- time rarely wait for each other. An entry never changes its part.
create table inbox_parts (
  part bigint primary key check (part between 0 and 31),
  entries bigint not null default 0 check (entries >= 0),
  bytes bigint not null default 0 check (bytes >= 0)
);

insert into inbox_parts (part) select generate_series(0, 31);

-- A recorded request until it is done. body is the whole of it, and digest the
-- SHA-256 of body; key and binding beside it are what statements compare.
-- version counts how often body was replaced, by a repeat with a later replay
-- end.
create table inbox_entries (
  serial bigint generated always as identity primary key,
  key text not null unique check (length(key) = 64),
  binding text not null check (length(binding) = 64),
  received_ns bigint not null,
  replay_end_ns bigint not null default 0,
  version bigint not null default 1 check (version > 0),
  owner text references inbox_owners (owner) on delete set null,
  part bigint not null references inbox_parts (part),
  bytes bigint not null check (bytes > 0),
  digest text not null check (length(digest) = 64),
  body bytea not null
);

-- Bodies are read once or twice: not worth compressing.
alter table inbox_entries alter column body set storage external;

create index inbox_entries_ready on inbox_entries (received_ns, serial) where owner is null;
create index inbox_entries_owner on inbox_entries (owner) where owner is not null;

-- What must be remembered of a delivery until it is done. bucket is the first
-- byte of the key, modulo 64; each has a bound.
create table gate_notes (
  key text primary key check (length(key) = 64),
  bucket bigint not null check (bucket between 0 and 63),
  version bigint not null check (version > 0),
  starts bigint not null,
  failures bigint not null,
  reason text not null,
  sent_ns bigint not null,
  written text not null,
  entered_number bigint not null,
  entered_head text not null,
  entered_base text not null
);

create index gate_notes_bucket on gate_notes (bucket);

-- The newest evaluation of a gate's head, and the requests that were entered
-- with it: their numbers, the newest last, separated by spaces.
create table gate_heads (
  head text primary key check (length(head) = 64),
  bucket bigint not null check (bucket between 0 and 63),
  version bigint not null check (version > 0),
  requests text not null,
  received_ns bigint not null default 0,
  delivery text not null default '',
  looked_at bigint not null
);

create index gate_heads_bucket on gate_heads (bucket, looked_at);

-- Evidence, under the SHA-256 of its bytes.
create table artifacts (
  digest text primary key check (length(digest) = 64),
  stored_at bigint not null,
  bytes bigint not null check (bytes >= 0),
  body bytea not null
);

alter table artifacts alter column body set storage external;

create index artifacts_age on artifacts (stored_at, digest);

create table artifact_usage (
  id bigint primary key check (id = 1),
  count bigint not null check (count >= 0),
  bytes bigint not null check (bytes >= 0)
);

insert into artifact_usage (id, count, bytes) values (1, 0, 0);
