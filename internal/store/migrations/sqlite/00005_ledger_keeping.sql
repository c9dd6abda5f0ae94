-- +goose Up

insert into schema_steps (version) values (5);

-- Where the ledger is: it was moved away, is on its way here, or came here.
-- While it is not here, its tables have names that end in _held, so that no
-- statement of any process finds them.
create table ledger_moves (
  id integer primary key check (id = 1),
  state text not null check (state in ('moved', 'incoming', 'prepared', 'here')),
  source text not null check (length(source) = 32),
  target text not null check (length(target) = 32),
  row_count integer not null default 0,
  digest text not null default '',
  at integer not null
) strict;

-- Trust sets whose rows were retired, by their marks in hexadecimal digits.
create table ledger_retired (
  mark text primary key check (length(mark) = 16),
  at integer not null
) strict;

-- What a retired trust set authenticated is never new again, whoever claims
-- it. The mark stands at this place of a row of version 2.
-- +goose StatementBegin
create trigger ledger_rows_retired before insert on ledger_rows
when hex(substr(new.body, 1, 1)) = '02' and exists (select 1 from ledger_retired where mark = lower(hex(substr(new.body, 101, 8))))
begin
  select raise(abort, 'TRIGGER constraint failed: ledger_retired');
end;
-- +goose StatementEnd
