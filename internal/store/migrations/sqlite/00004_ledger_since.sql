-- +goose Up

insert into schema_steps (version) values (4);

-- Since when a row has been in its state, in seconds; 0 in rows from before.
alter table ledger_rows add column since integer not null default 0;

create index ledger_rows_open on ledger_rows (state, since) where state < 3;

-- PostgreSQL's alone: the cluster that the root was last opened in, and the
-- timeline on which a part last handed out a fence.
alter table ledger_root add column cluster text not null default '';
alter table ledger_parts add column timeline text not null default '';
