-- +goose Up

insert into schema_steps (version) values (7);

-- What senders wait for: the staged result of a delivery, byte for byte, or,
-- where body is null, the reason for which it ended without one. digest is that
-- of an entry in files.
create table results (
  delivery text primary key check (length(delivery) = 30),
  stored_at bigint not null,
  bytes bigint not null check (bytes >= 0),
  digest text not null check (length(digest) = 64),
  reason text not null,
  body bytea
);

alter table results alter column body set storage external;

create index results_age on results (stored_at, delivery);

create table result_usage (
  id bigint primary key check (id = 1),
  count bigint not null check (count >= 0),
  bytes bigint not null check (bytes >= 0)
);

insert into result_usage (id, count, bytes) values (1, 0, 0);

-- The key that poll secrets are made from, made once for all processes.
create table result_key (
  id bigint primary key check (id = 1),
  key bytea not null check (length(key) = 32)
);
