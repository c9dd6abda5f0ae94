-- +goose Up

insert into schema_steps (version) values (6);

-- The job that asked for a request, as JSON; empty where a webhook told of it.
alter table gate_notes add column entered_job text not null default '';
