-- +goose Up

insert into schema_steps (version) values (5);

-- Where the ledger is: it was moved away, is on its way here, or came here.
-- While it is not here, its tables have names that end in _held, so that no
-- statement of any process finds them.
create table ledger_moves (
  id bigint primary key check (id = 1),
  state text not null check (state in ('moved', 'incoming', 'prepared', 'here')),
  source text not null check (length(source) = 32),
  target text not null check (length(target) = 32),
  row_count bigint not null default 0,
  digest text not null default '',
  at bigint not null
);

-- Trust sets whose rows were retired, by their marks in hexadecimal digits.
create table ledger_retired (
  mark text primary key check (length(mark) = 16),
  at bigint not null
);

-- What a retired trust set authenticated is never new again, whoever claims
-- it. The mark stands at this place of a row of version 2.
-- +goose StatementBegin
create function ledger_refuse_retired() returns trigger language plpgsql as $$
begin
  if get_byte(new.body, 0) = 2 and exists (select 1 from ledger_retired where mark = encode(substring(new.body from 101 for 8), 'hex')) then
    raise exception using errcode = 'check_violation', constraint = 'ledger_retired', message = 'the trust set is retired';
  end if;
  return new;
end $$;
-- +goose StatementEnd

create trigger ledger_rows_retired before insert on ledger_rows for each row execute function ledger_refuse_retired();
