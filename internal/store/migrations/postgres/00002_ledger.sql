-- +goose Up

insert into schema_steps (version) values (2);

-- What a ledger was made with, once and for ever.
create table ledger_root (
  id bigint primary key check (id = 1),
  uuid text not null check (length(uuid) = 32),
  lease_ns bigint not null check (lease_ns > 0),
  capacity bigint not null check (capacity > 0),
  signed_age_ns bigint not null check (signed_age_ns > 0),
  queue_age_ns bigint not null check (queue_age_ns > 0),
  parts bigint not null check (parts between 1 and 64),
  made_at bigint not null
);

-- A part counts its rows and its fences by itself; a row never changes its
-- part. last_fence only grows, also when rows are removed.
create table ledger_parts (
  part bigint primary key check (part >= 0),
  row_limit bigint not null check (row_limit > 0),
  row_count bigint not null default 0 check (row_count between 0 and row_limit),
  last_fence bigint not null default 0 check (last_fence >= 0),
  closed_ns bigint not null default 0 check (closed_ns >= 0),
  running_ns bigint not null default 0 check (running_ns >= 0),
  seen_boot text not null default '',
  seen_ns bigint not null default 0
);

-- body is the whole row; the columns beside it are what statements compare
-- and find rows by. token is another one after each change.
create table ledger_rows (
  key text primary key check (length(key) = 64),
  part bigint not null references ledger_parts (part),
  state bigint not null check (state between 1 and 3),
  evaluation text not null,
  fence bigint not null check (fence > 0),
  replay_end bigint not null default 0,
  token text not null check (length(token) = 32),
  body bytea not null
);

create index ledger_rows_ending on ledger_rows (part, replay_end) where state = 3 and replay_end <> 0;
