-- +goose Up

insert into schema_steps (version) values (4);

-- Since when a row has been in its state, in seconds; 0 in rows from before.
alter table ledger_rows add column since bigint not null default 0;

create index ledger_rows_open on ledger_rows (state, since) where state < 3;

-- The cluster that the root was last opened in, and the timeline on which a
-- part last handed out a fence: on another one, fences start beyond all that
-- may have been handed out and lost.
alter table ledger_root add column cluster text not null default '';
alter table ledger_parts add column timeline text not null default '';

-- Its rows change with each claim, and have room for that in their page.
alter table ledger_parts set (fillfactor = 20);

-- Integers in rows are little-endian.
-- +goose StatementBegin
create function ledger_u64(b bytea, at int) returns bigint language sql immutable as
$$ select get_byte(b, at)::bigint | (get_byte(b, at + 1)::bigint << 8) | (get_byte(b, at + 2)::bigint << 16) | (get_byte(b, at + 3)::bigint << 24)
  | (get_byte(b, at + 4)::bigint << 32) | (get_byte(b, at + 5)::bigint << 40) | (get_byte(b, at + 6)::bigint << 48) | (get_byte(b, at + 7)::bigint << 56) $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function ledger_le64(n bigint) returns bytea language sql immutable as
$$ select set_byte(set_byte(set_byte(set_byte(set_byte(set_byte(set_byte(set_byte('\x0000000000000000'::bytea,
  0, (n & 255)::int), 1, ((n >> 8) & 255)::int), 2, ((n >> 16) & 255)::int), 3, ((n >> 24) & 255)::int),
  4, ((n >> 32) & 255)::int), 5, ((n >> 40) & 255)::int), 6, ((n >> 48) & 255)::int), 7, ((n >> 56) & 255)::int) $$;
-- +goose StatementEnd

-- An operation of the ledger in one statement: it reads the row and its part,
-- decides by the table of package ledger, and stores, comparing what it read.
-- Whoever calls it decides once more, on what it returns, and believes it only
-- if the digest of the row that it stored is the same. Another table is
-- another function: processes of the version before go on to call this one.
--
-- kind: 1 claim, 2 renew, 3 stage, 4 complete, 5 repeat. boot names the
-- server's clock in deadlines. replay_end is the delivery's, null if it is
-- permanent. sure is what the caller knows of the part's running time.
-- evaluation and fence are the lease's, or the new evaluation for a claim;
-- dead_evaluation and dead_fence a lease that needs no waiting for.
-- publication is as it stands in a staged row: digest, length, bytes.
-- +goose StatementBegin
create function ledger_step_v1(
  kind int, key_ text, part_ bigint, binding bytea, boot bytea, lease bigint, lifetime bigint, replay_end bigint, sure bigint, trust bytea,
  evaluation_ text, evaluation_bytes bytea, fence_ bigint, dead_evaluation bytea, dead_fence bigint,
  publication bytea, publication_none boolean, token_ text,
  out now_us bigint, out no_room boolean, out last_fence_ bigint, out closed bigint, out running bigint, out drawn bigint,
  out seen_state bigint, out seen_evaluation text, out seen_fence bigint, out seen bytea, out stored bytea
) language plpgsql as $$
declare
  seen_token text; row_count_ bigint; row_limit_ bigint;
  now_ns bigint; counted bigint := 0; tries int := 0; create_row boolean; intact boolean;
  -- the parts of the row, as they were and as they will be
  state_ int; fence_next bigint; packed bigint; marks bytea; end_ns bigint; running_end bigint; term bytea; tail bytea; none boolean;
  after_marks int; behind int; until_ bigint; deadline bigint; held boolean; live boolean; next_end bigint; body_ bytea; token_next text;
  identity bytea;
begin
  loop
    tries := tries + 1;
    if tries > 100 then
      raise exception 'others were in the way' using errcode = '40001';
    end if;
    select (extract(epoch from clock_timestamp())*1000000)::bigint, p.row_limit, p.row_count, p.last_fence, p.closed_ns,
        greatest(p.running_ns + greatest(0, (extract(epoch from clock_timestamp())*1000000)::bigint * 1000 - p.seen_ns), sure),
        coalesce(r.state, 0), r.evaluation, r.fence, r.token, r.body
      into now_us, row_limit_, row_count_, last_fence_, closed, running, seen_state, seen_evaluation, seen_fence, seen_token, seen
      from ledger_parts p left join ledger_rows r on r.key = key_ where p.part = part_;
    if not found then
      last_fence_ := -1;
      return;
    end if;
    now_ns := now_us * 1000;
    no_room := row_count_ - counted >= row_limit_;
    stored := null;
    create_row := false;
    held := false;
    body_ := null;

    if seen_state = 0 then
      if kind = 1 and not no_room and (replay_end is null or now_ns <= replay_end and (closed = 0 or replay_end > closed)) then
        create_row := true;
        state_ := 1;
        packed := (now_us / 1000000) | (1::bigint << 40);
        identity := decode(key_, 'hex') || binding || evaluation_bytes;
        marks := trust;
        end_ns := replay_end;
        running_end := running + greatest(lifetime, replay_end - now_ns);
        held := true;
      end if;
    else
      -- A row that is not what it says is for the caller to name.
      intact := length(seen) >= 132 and get_byte(seen, 0) in (1, 2) and get_byte(seen, 1) = seen_state and get_byte(seen, 2) < 4 and get_byte(seen, 3) = 0
        and substring(seen from 5 for 32) = decode(key_, 'hex') and seen_fence <= last_fence_;
      if intact then
        after_marks := case get_byte(seen, 0) when 1 then 100 else 108 end;
        behind := after_marks + case get_byte(seen, 2) & 1 when 1 then 16 else 0 end;
        intact := ledger_u64(seen, 84) = seen_fence and case seen_state
          when 1 then length(seen) = behind + 44
          when 2 then case when length(seen) < behind + 80 then false
            else length(seen) = behind + 80 + ((ledger_u64(seen, behind + 72) >> 32) & 4294967295) end
          else length(seen) = behind + 32 end;
      end if;
      if intact and substring(seen from 37 for 32) = binding then
        state_ := seen_state;
        identity := substring(seen from 5 for 80);
        fence_next := seen_fence;
        packed := ledger_u64(seen, 92);
        marks := substring(seen from 101 for after_marks - 100);
        end_ns := null;
        running_end := null;
        if get_byte(seen, 2) & 1 = 1 then
          end_ns := ledger_u64(seen, after_marks);
          running_end := ledger_u64(seen, after_marks + 8);
        end if;
        none := get_byte(seen, 2) & 2 = 2;
        term := ''::bytea;
        live := false;
        if state_ < 3 then
          term := substring(seen from behind + 1 for 44);
          deadline := ledger_u64(term, 16);
          until_ := ledger_u64(term, 24);
          live := substring(term from 1 for 16) = boot and deadline >= now_ns;
          behind := behind + 44;
        end if;
        tail := substring(seen from behind + 1);

        if kind = 1 or kind = 5 then
          if end_ns is not null and (replay_end is null or replay_end > end_ns) then
            end_ns := replay_end;
            running_end := greatest(running_end, running + greatest(lifetime, replay_end - now_ns));
          end if;
          held := kind = 1 and state_ < 3 and not (live
            and not coalesce(substring(identity from 65 for 16) = dead_evaluation and seen_fence = dead_fence, false));
          if held and state_ = 1 and (packed >> 40) & 16777215 < 16777215 then
            packed := packed + (1::bigint << 40);
          end if;
        elsif kind = 2 then
          if state_ = 1 and live and seen_evaluation = evaluation_ and substring(identity from 65 for 16) = evaluation_bytes and seen_fence = fence_ then
            term := boot || ledger_le64(greatest(deadline, now_ns + lease)) || ledger_le64(greatest(until_, now_ns + lease)) || '\x000000000000000000000000';
          end if;
        elsif kind = 3 then
          if state_ = 1 and seen_evaluation = evaluation_ and substring(identity from 65 for 16) = evaluation_bytes and seen_fence = fence_ then
            if substring(term from 1 for 16) <> boot then
              deadline := 0;
              until_ := 0;
            end if;
            term := boot || ledger_le64(greatest(deadline, now_ns + lease)) || ledger_le64(greatest(until_, now_ns + lease)) || '\x000000000000000000000000';
            state_ := 2;
            packed := (packed & ~1099511627775) | (now_us / 1000000);
            none := publication_none;
            tail := publication;
          end if;
        elsif kind = 4 then
          if state_ = 2 and seen_evaluation = evaluation_ and substring(identity from 65 for 16) = evaluation_bytes
              and none = publication_none and tail = publication then
            state_ := 3;
            packed := (packed & ~1099511627775) | (now_us / 1000000);
            none := false;
            term := ''::bytea;
            tail := substring(tail from 1 for 32);
          end if;
        end if;
      end if;
    end if;

    if held then
      -- It hands out a lease: its part's next fence, which others wait for.
      if drawn is null then
        counted := case when create_row then 1 else 0 end;
        update ledger_parts set row_count = row_count + counted, timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8),
            last_fence = case when timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8) then last_fence + 1 else ((last_fence >> 40) + 1) << 40 end
          where part = part_ and closed_ns = closed and last_fence >= last_fence_ and row_count + counted <= row_limit
          returning last_fence into drawn;
        if drawn is null then
          counted := 0;
          continue;
        end if;
      end if;
      fence_next := drawn;
      term := boot || ledger_le64(now_ns + lease) || ledger_le64(now_ns + lease) || '\x000000000000000000000000';
    end if;
    if counted <> (case when create_row then 1 else 0 end) then
      -- Others made the row, or took it away, before this one was counted.
      update ledger_parts set row_count = row_count - counted + (case when create_row then 1 else 0 end) where part = part_;
      counted := case when create_row then 1 else 0 end;
    end if;

    if create_row then
      tail := ''::bytea;
      none := false;
    elsif state_ is null or seen_state = 0 or not intact or substring(seen from 37 for 32) <> binding then
      return;
    end if;
    body_ := (case when length(marks) = 8 then '\x02'::bytea else '\x01'::bytea end)
      || set_byte(set_byte('\x000000'::bytea, 0, state_), 1, (case when end_ns is null then 0 else 1 end) + (case when none then 2 else 0 end))
      || identity || ledger_le64(fence_next) || ledger_le64(packed) || marks
      || (case when end_ns is null then ''::bytea else ledger_le64(end_ns) || ledger_le64(running_end) end) || term || tail;
    if body_ = seen then
      return;
    end if;
    token_next := token_;
    next_end := coalesce(end_ns / 1000, 0);
    if create_row then
      insert into ledger_rows (key, part, state, evaluation, fence, replay_end, since, token, body)
        values (key_, part_, state_, evaluation_, fence_next, next_end, packed & 1099511627775, token_next, body_)
        on conflict (key) do nothing;
    else
      if kind = 1 and not held then
        token_next := reverse(token_);
      end if;
      update ledger_rows set state = state_, fence = fence_next, replay_end = next_end, since = packed & 1099511627775, token = token_next, body = body_
        where key = key_ and state = seen_state and evaluation = seen_evaluation and fence = seen_fence and token = seen_token;
    end if;
    if found then
      stored := sha256(body_);
      return;
    end if;
  end loop;
end $$;
-- +goose StatementEnd
