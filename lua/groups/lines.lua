local limit_checks = use 'limits/checks'
local scheduled_bucket = use 'limits/scheduled-bucket'
local turns = use 'limits/turns'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'

-- Cells and their lines. A cell is the state of one limit for one value of its key (groups/limits-of). A lane whose
-- next job has to wait for a cell stands in the line of that cell, in one line at a time, and lanes do not overtake
-- each other there. A line is in the order of start-time fair queueing between groups (groups/queue-groups), by their
-- use of that cell. When its cell has room, only the first of a line is let go, and is tried at the next turn of its
-- group: however many lanes wait, a departure tries one of them.
-- A job may need several cells. Its lane has a place in each of their lines. While it waits for one cell, it lets
-- others pass in the other lines; once it is let go, it stands in all of them. And a cell that has room is kept for the
-- lane whose turn it is, while that waits for another cell: otherwise jobs that need only one of both would take each
-- unit the moment that it comes. A cell is kept for at most a tenth of the time.
-- If a cell has places (groups/places), a lane waits until jobs end: then it is let go, no more lanes than there are
-- places. Only our scripts report the end of a job, and a dead worker does not, so holders are checked, too. A cell may
-- be shared with other queues (limits/turns): the line belongs to one queue. Adds these functions to the table of
-- groups/queue-groups.
--   meta:lines              hash, cell -> its line, packed: v (its virtual time), t (the last tag of a new group),
--                           places (how many lanes have one), standing (how many of them stand in it), since (when the
--                           line began, µs), kept (for how long the cell was kept since then, µs), and for whom it is
--                           kept: keeper, from, to (µs), or nothing; if jobs have to end, also ended (when one did
--                           last, µs) and between (the mean time between two ends, µs, 0 while unknown); and shared,
--                           for a shared cell, as in limits/turns
--   meta:lines:due          cell -> when its next lane may go, µs; +inf once a job has to end first
--   meta:line:<cell>        sorted set, lane -> tag
--   meta:line:tags:<cell>   group -> tag, if that is above v
--   meta:lanes:held         hash, lane -> its ticket, packed: cell in whose line it stands, tried (whether it was let
--                           go), rank among the lanes of its group, places: cell -> {tag, units that it waits for, tier
--                           of its job, step: by how much its tag advanced its group's}
local function group_lines(groups)
  -- The share of time for which a cell may be kept.
  local KEPT = 0.1
  -- How often holders of places are checked, µs; at most groups.VERIFIED of them, for at most VERIFIED_CELLS cells.
  local VERIFY_US, VERIFIED_CELLS = 1000000, 100
  -- To find the lanes of one group that wait: of all groups so many at most, else those of so many jobs.
  local HELD_READ, FIRST_READ = 200, 32

  local function line_key(g, cell)
    return g.base .. 'meta:line:' .. cell
  end

  local function tags_key(g, cell)
    return g.base .. 'meta:line:tags:' .. cell
  end

  local function due_key(g)
    return g.base .. 'meta:lines:due'
  end

  -- The unpacked field of one of the two hashes, nil if it is missing. Each is read once in a call, and stored at its
  -- end (groups.save_lines). known: the fields read so far
  local function read_once(g, known, hash, field)
    if not g.lined then return nil end
    if known[field] == nil then
      local packed = redis.call('HGET', g.base .. 'meta:' .. hash, field)
      known[field] = packed and cmsgpack.unpack(packed) or false
    end
    return known[field] or nil
  end

  -- The line of a cell; nil if no lane has a place in it.
  local function line_of(g, cell)
    return read_once(g, g.lines_read, 'lines', cell)
  end

  local function keep_line(g, cell, line)
    g.lines_read[cell], g.lines_changed[cell] = line, true
  end

  local function set_due(g, cell, at)
    redis.call('ZADD', due_key(g), at < math.huge and as_text.us(at) or '+inf', cell)
    g.first_due_at = nil
  end

  -- The next lane of a cell may go at once. Sleeping workers do not know.
  local function call_next(g, cell)
    set_due(g, cell, 0)
    g.awaited = true
  end

  -- A lane has left the line. Without lanes it is not due, and without places it ends. Returns whether one stands in
  -- it.
  local function lane_left(g, cell, line)
    if line.standing == 0 then
      redis.call('ZREM', due_key(g), cell)
      g.first_due_at = nil
      if line.shared then turns.leave(line.shared, g.base, g.now or redis_now()) end
    end
    if line.places == 0 then redis.call('DEL', tags_key(g, cell)) end
    keep_line(g, cell, line.places > 0 and line)
    return line.standing > 0
  end

  local function ticket_of(g, lane)
    return read_once(g, g.tickets, 'lanes:held', lane)
  end

  local function keep_ticket(g, lane, ticket)
    g.tickets[lane], g.tickets_changed[lane] = ticket, true
  end

  local function drop_ticket(g, lane)
    keep_ticket(g, lane, false)
  end

  -- Stores changes of one of the two hashes. Returns whether anything was removed from it.
  local function store_changed(g, hash, known, changed)
    local kept, gone = {}, {}
    for field in pairs(changed) do
      if known[field] then
        kept[#kept + 1] = field
        kept[#kept + 1] = cmsgpack.pack(known[field])
      else
        gone[#gone + 1] = field
      end
    end
    local key = g.base .. 'meta:' .. hash
    groups.in_parts(kept, function(...) redis.call('HSET', key, ...) end)
    groups.in_parts(gone, function(...) redis.call('HDEL', key, ...) end)
    return #gone > 0
  end

  -- Stores lines and tickets.
  function groups.save_lines(g)
    if not g.lined then return end
    store_changed(g, 'lanes:held', g.tickets, g.tickets_changed)
    local ended = store_changed(g, 'lines', g.lines_read, g.lines_changed)
    g.tickets_changed, g.lines_changed = {}, {}
    if ended and redis.call('EXISTS', g.base .. 'meta:lines') == 0 then
      redis.call('HDEL', g.base .. 'meta:lanes', 'lined')
      g.lined = false
    end
  end

  local function first_of(g, cell)
    local first = redis.call('ZRANGE', line_key(g, cell), 0, 0, 'WITHSCORES')
    return first[1], tonumber(first[2])
  end

  -- The cell is no longer kept.
  local function end_keep(g, line)
    line.kept = line.kept + math.max(0, math.min(g.now or redis_now(), line.to) - line.from)
    line.keeper, line.from, line.to = nil, nil, nil
  end

  -- A lane gives a place back, in a line in which it does not stand: the charge of its group for it, and the cell, if
  -- that was kept for it.
  local function give_place_back(g, group, lane, cell, place)
    local line = line_of(g, cell)
    local kept = tonumber(redis.call('ZSCORE', tags_key(g, cell), group) or nil)
    if kept then redis.call('ZADD', tags_key(g, cell), as_text.us(kept - place.step), group) end
    line.places = line.places - 1
    local was_kept = line.keeper == lane
    if was_kept then end_keep(g, line) end
    if lane_left(g, cell, line) and was_kept then call_next(g, cell) end
  end

  -- A lane lets others pass in a line, but keeps its place there. The cell is for the next lane: at once or, if the
  -- lane only passed through, when it was due before. Otherwise two lanes that let each other go at once would do so
  -- forever. Places may have been counted for it, wherever it stood.
  local function step_out(g, lane, cell, passed)
    local line, first = line_of(g, cell), first_of(g, cell)
    if redis.call('ZREM', line_key(g, cell), lane) == 0 then return end
    line.standing = line.standing - 1
    if not lane_left(g, cell, line) or not (first == lane or line.between) then return end
    local due = passed and redis.call('ZSCORE', due_key(g), cell)
    if not due or tonumber(due) == math.huge then call_next(g, cell) end
  end

  -- A lane gives up all its places.
  function groups.leave_line(g, lane)
    local ticket = ticket_of(g, lane)
    if not ticket then return nil end
    local group = groups.group_of_lane(lane)
    drop_ticket(g, lane)
    for cell, place in pairs(ticket.places) do
      step_out(g, lane, cell)
      give_place_back(g, group, lane, cell, place)
    end
    return ticket
  end

  -- The rank that a lane has once it is ready again, or since it was let go; nil without a place in a line.
  function groups.rank_held(g, lane)
    local ticket = ticket_of(g, lane)
    return ticket and ticket.rank
  end

  -- A lane has another first job, which may go sooner, and therefore another rank. False if it does not wait in a line.
  function groups.try_again(g, lane, rank)
    local ticket = ticket_of(g, lane)
    if not ticket then return false end
    ticket.rank = as_text.us(rank)
    -- The units of the new job are unknown until it is tried.
    for _, place in pairs(ticket.places) do place.units = 0 end
    keep_ticket(g, lane, ticket)
    if ticket.tried then return false end
    if first_of(g, ticket.cell) == lane or line_of(g, ticket.cell).between then
      call_next(g, ticket.cell)
    end
    return true
  end

  -- The next lane for a cell may go sooner: at once, unless it is the turn of another queue. Returns whether it is not.
  local function free(g, cell, shared)
    local now = g.now or redis_now()
    local is_own = not shared or turns.freed(shared, g.base, now)
    if not line_of(g, cell) then return false end
    set_due(g, cell, is_own and 0 or now + turns.TURN_MS * 1000)
    g.awaited = g.awaited or is_own
    return is_own
  end

  -- A cell got units back from a job of this group: the next lane may go sooner.
  function groups.cell_freed(g, cell, group, shared)
    if not g.lanes then return groups.release(g, group, 'limited') end
    free(g, cell, shared)
  end

  -- Whether jobs wait for a cell: lanes in its line or, without lanes, the group that is its value.
  function groups.holds(g, cell, value)
    if g.lanes then return line_of(g, cell) and true or false end
    return groups.may_have(g, 'limited') and redis.call('ZSCORE', groups.key(g, 'limited'), value) and true or false
  end

  -- A job has given back places of a cell. Returns whether a lane that waits for them may go.
  function groups.place_freed(g, cell, shared)
    local line, now = line_of(g, cell), g.now or redis_now()
    if not (line and line.between) then return free(g, cell, shared) end
    if line.ended then
      local passed = math.max(0, now - line.ended)
      local moved = line.between + (math.min(passed, 4 * line.between) - line.between) / 8
      line.between = line.between == 0 and passed or math.floor(moved)
    end
    line.ended = now
    keep_line(g, cell, line)
    return free(g, cell, shared)
  end

  -- When to check holders of places next, µs; math.huge if no lane waits for places.
  function groups.verified_next(g)
    local last = g.lined and g.has_places and redis.call('ZRANGE', due_key(g), -1, -1, 'WITHSCORES')[2]
    return last and tonumber(last) == math.huge and g.now + VERIFY_US or math.huge
  end

  -- When the first of the cells may let a lane go, µs; math.huge if no lane waits.
  function groups.first_due(g)
    if not g.lined then return math.huge end
    g.first_due_at = g.first_due_at or tonumber(redis.call('ZRANGE', due_key(g), 0, 0, 'WITHSCORES')[2] or nil) or math.huge
    return g.first_due_at
  end

  -- The cell in whose line a lane waits without being tried: {cell, at: when a lane of that line may go, µs, 0 if
  -- unknown, infinite if a job has to end first}. Nil if there is none.
  function groups.waits_in_line(g, lane)
    local ticket = ticket_of(g, lane)
    if not ticket or ticket.tried then return nil end
    return { cell = ticket.cell, at = tonumber(redis.call('ZSCORE', due_key(g), ticket.cell) or nil) or 0 }
  end

  -- The lanes of a group that wait in lines, each by its first job, as groups.place_in_lane has it. Where many of all groups wait, only
  -- those of its first jobs are looked at.
  function groups.waiting_lanes(g, group)
    local held, found, known, ids = g.base .. 'meta:lanes:held', {}, {}, {}
    if redis.call('HLEN', held) <= HELD_READ then
      for _, lane in ipairs(redis.call('HKEYS', held)) do
        if groups.group_of_lane(lane) == group then ids[#ids + 1] = select(2, groups.lane_order(g, lane))(1) end
      end
    else
      ids = redis.call('ZRANGE', groups.line(g, group).set, 0, FIRST_READ - 1)
    end
    for _, id in ipairs(ids) do
      local place = groups.place_in_lane(g, id)
      if place and not known[place.lane] then
        known[place.lane], found[#found + 1] = true, place
      end
    end
    return found
  end

  -- A group is held as a whole, by hand: lines in which its lanes stand first go on without them.
  function groups.let_lines_pass(g, group)
    for _, place in ipairs(g.lined and groups.waiting_lanes(g, group) or {}) do
      local cell = place.waits and place.waits.cell
      if cell and first_of(g, cell) == place.lane then call_next(g, cell) end
    end
  end

  -- If lanes wait and the rate of no group lets one go sooner: the cell that is the first to let one go, and its first lane.
  function groups.first_waiting(g)
    local due = g.lined and redis.call('ZRANGE', due_key(g), 0, 0, 'WITHSCORES') or {}
    if not due[1] then return nil end
    local limited = groups.may_have(g, 'limited') and redis.call('ZRANGE', groups.key(g, 'limited'), 0, 0, 'WITHSCORES')[2]
    if limited and tonumber(limited) < tonumber(due[2]) then return nil end
    return due[1], (first_of(g, due[1]))
  end

  -- Whether the group of a lane is ready, or waits for its lanes alone. Second, whether it does the latter.
  local function may_take_turn(g, group)
    if groups.ready_tag(g, group) then return true, false end
    local waits = groups.waits_for_lanes(g, group)
    return waits, waits
  end

  -- How long a limit takes to refill units, µs; for places, the time between two ends.
  local function service_us(l, units, line)
    if l.algorithm == 'concurrency' then return line.between end
    return l.interval and units * l.interval or units * l.window / l.limit
  end

  -- A lane gives up its places, and is tried again at the turn of its group: that is held as a whole, or no limits apply
  -- any more. waits: whether the group waits for its lanes alone
  local function give_up(g, group, lane, waits)
    local ticket = groups.leave_line(g, lane)
    groups.lane_ready(g, group, lane, ticket.rank, waits)
  end

  -- A lane stands in a line in which it has a place.
  local function step_in(g, lane, cell, tag)
    if redis.call('ZADD', line_key(g, cell), as_text.us(tag), lane) == 0 then return end
    local line = line_of(g, cell)
    line.standing = line.standing + 1
    if line.shared and line.standing == 1 then turns.enter(line.shared, g.base, g.now) end
    keep_line(g, cell, line)
  end

  -- Whether a lane that stands in a line is the first of it.
  local function is_first(g, cell, line, lane)
    return line.standing == 1 or first_of(g, cell) == lane
  end

  -- Whether limits of keys may hold anything.
  function groups.limits_apply(g)
    return g.enforced and g.limits
  end

  -- The limit of a cell, if it holds anything now.
  local function holding(g, cell)
    local l = groups.limits_apply(g) and g.limits.of_cell(cell)
    return l and l.mode == 'enforce' and l
  end

  -- Lets a lane of a line be tried, at the next turn of its group. Lanes behind it follow at the rate of the limit:
  -- they do not wait for that turn. waits: whether its group waits for its lanes alone
  local function let_go(g, cell, lane, ticket, at, waits)
    ticket.tried = true
    keep_ticket(g, lane, ticket)
    for other, place in pairs(ticket.places) do
      if other ~= cell then step_in(g, lane, other, place.tag) end
    end
    groups.lane_ready(g, groups.group_of_lane(lane), lane, ticket.rank, waits)
    local l = holding(g, cell)
    local is_paced = l and l.algorithm ~= 'concurrency'
    set_due(g, cell, is_paced and math.max(g.now, at) + math.ceil(service_us(l, ticket.places[cell].units)) or 0)
  end

  -- How many places of a cell are free; infinite if it has none, or if no limit holds it by now. Second, the limit.
  local function room_of(g, cell, line)
    local part = line.between and groups.limits_apply(g) and g.limits.part_of_cell(cell)
    if not part or part.l.algorithm ~= 'concurrency' or part.l.mode ~= 'enforce' then return math.huge, math.huge end
    return part.l.limit - part.l.kept - part.s.used, part.l.limit
  end

  -- The first lane of a line that is not being tried, and its ticket; nil if there is none among the first ones. If no
  -- place remains besides those being tried, it has to wait: then third, true.
  local function next_of(g, cell, line)
    local room, limit = room_of(g, cell, line)
    for _, lane in ipairs(redis.call('ZRANGE', line_key(g, cell), 0, groups.DUE - 1)) do
      local ticket = ticket_of(g, lane)
      room = room - math.min(ticket.places[cell].units, limit)
      if not ticket.tried then return lane, ticket, room < 0 end
    end
  end

  -- Some holders of places for which lanes wait may have ended without a report, or died.
  function groups.verify_places(g)
    local since = g.lined and g.has_places and g.now - g.verified
    if not since or (since >= 0 and since < VERIFY_US) then return end
    redis.call('HSET', g.base .. 'meta:lanes', 'verified', as_text.us(g.now))
    local count, most = redis.call('ZCOUNT', due_key(g), '+inf', '+inf'), groups.VERIFIED
    local from = count > VERIFIED_CELLS and g.now % count or 0
    local cells = count > 0 and redis.call('ZRANGEBYSCORE', due_key(g), '+inf', '+inf', 'LIMIT', from, VERIFIED_CELLS) or {}
    for _, cell in ipairs(cells) do
      local part = most > 0 and g.limits and g.limits.part_of_cell(cell)
      if part then most = most - part.l.verbs.verify(part.s, part.l, most) end
      local line = line_of(g, cell)
      local lane, _, is_full = next_of(g, cell, line or {})
      if not line or (lane and not is_full) then set_due(g, cell, 0) end
    end
  end

  -- A cell is due at `at` (µs).
  local function release_cell(g, cell, at)
    for _ = 1, groups.DUE do
      local line = line_of(g, cell)
      if not line then return end
      if line.keeper and line.to > g.now and holding(g, cell) then return set_due(g, cell, line.to) end
      if line.keeper then
        end_keep(g, line)
        keep_line(g, cell, line)
      end
      local lane, ticket, is_full = next_of(g, cell, line)
      if is_full then return set_due(g, cell, math.huge) end
      if not lane then
        -- All are being tried: the next departure says when another one may go.
        redis.call('ZREM', due_key(g), cell)
        g.first_due_at = nil
        return
      end
      local group = groups.group_of_lane(lane)
      local may, waits = may_take_turn(g, group)
      if may and groups.limits_apply(g) then return let_go(g, cell, lane, ticket, at, waits) end
      give_up(g, group, lane, waits)
    end
  end

  -- Cells that are due by `by` (µs) let lanes go, at most `most` of them.
  function groups.release_cells(g, by, most)
    if not g.lined then return end
    local due = redis.call('ZRANGEBYSCORE', due_key(g), '-inf', as_text.us(by), 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #due, 2 do release_cell(g, due[i], tonumber(due[i + 1])) end
  end

  -- The first slots of groups, and when cells are due, µs, ascending: at most `most`.
  function groups.with_dues(g, slots, most)
    local due = g.lined and redis.call('ZRANGE', due_key(g), 0, most - 1, 'WITHSCORES') or {}
    for i = 2, #due, 2 do if due[i] ~= 'inf' then slots[#slots + 1] = tonumber(due[i]) end end
    table.sort(slots)
    return { unpack(slots, 1, most) }
  end

  -- All cells have to be checked again, some by each call: limits or Redis's clock have changed.
  function groups.all_due(g)
    if not g.lined then return end
    redis.call('ZUNIONSTORE', due_key(g), 1, due_key(g), 'WEIGHTS', 0)
    g.first_due_at = nil
  end

  -- The place of a job in the line of a part's cell: its lane's, or the place of a new group. Second, whether the group
  -- is new there.
  local function place_in(g, pick, part)
    local known = pick.ticket and pick.ticket.places[part.cell]
    if known then return known.tag, false end
    local line = part.line
    local kept = tonumber(redis.call('ZSCORE', tags_key(g, part.cell), pick.group) or nil)
    if kept and kept > line.v then return kept, false end
    return math.max(line.v, line.t) + 1, true
  end

  -- Whether a lane stands before a job in the line of a part's cell, or the cell is kept for one. Lanes of groups that
  -- are held as a whole give up their places.
  local function is_behind(g, pick, part)
    local line = part.line
    if line.keeper and line.to > g.now then return line.keeper ~= pick.lane end
    -- A lane that is let go stands in all lines in which it has a place.
    local has_place = pick.ticket and pick.ticket.places[part.cell]
    if line.standing == (has_place and 1 or 0) then return false end
    for _ = 1, groups.DUE do
      local first, tag = first_of(g, part.cell)
      if not first or first == pick.lane or tag > part.tag then return false end
      local group = groups.group_of_lane(first)
      if group == pick.group or may_take_turn(g, group) then return true end
      give_up(g, group, first)
    end
    return true
  end

  -- The part of a shared cell at which it is the turn of another queue, and true; nothing if there is none.
  local function not_own_turn(g, pick)
    for i = 1, #pick.parts do
      local part = pick.parts[i]
      local waits = part.shared and part.cost > 0 and part.l.mode == 'enforce'
      local ends = waits and turns.until_own(part.shared, g.base, g.now, part.l.algorithm ~= 'concurrency')
      if ends then
        -- Nothing is granted ahead of that.
        part.slot = ends + g.ahead
        return part, true
      end
    end
  end

  -- The first part that is closed at the latest slot of all, if there is none before `by` at which all are open.
  local function closed_then(pick, slot, by)
    if pick.slot <= by then return nil end
    for _, part in ipairs(pick.parts) do
      if part.cost > 0 and part.l.mode == 'enforce' and scheduled_bucket.opens(part.l, slot) > slot then
        part.slot = pick.slot
        return part
      end
    end
  end

  -- The part (groups/limits-of) for which a job has to wait, nil if it may go by `by`: it stands behind a line, or its
  -- slot is later. Second, whether it stands behind others. Notes in each part its line and tag there.
  local function waits_for(g, pick, by)
    local latest, until_us, behind = nil, 0, nil
    pick.ticket = ticket_of(g, pick.lane)
    for i = 1, #pick.parts do
      local part = pick.parts[i]
      local wait = part.cost > 0 and limit_checks.wait(part) or 0
      part.slot = wait > 0 and g.now + math.ceil(wait) or 0
      if part.slot > until_us then latest, until_us = part, part.slot end
      part.line = part.cost > 0 and part.l.mode == 'enforce' and line_of(g, part.cell) or nil
      if part.line then
        part.tag, part.is_new = place_in(g, pick, part)
        if is_behind(g, pick, part) then behind = behind or part end
      end
    end
    if behind then return behind, true end
    if until_us > by then return latest end
    local closed = closed_then(pick, until_us, by)
    if closed then return closed end
    return not_own_turn(g, pick)
  end

  -- A job whose turn it is in all its lines waits for room in one cell: others that have room are kept for it, if that
  -- is not long compared with how fast they refill.
  local function keep_others(g, pick, waited)
    local wait = waited.slot < math.huge and waited.slot - g.now or line_of(g, waited.cell).between
    for _, part in ipairs(pick.parts) do
      local line = part ~= waited and part.cost > 0 and part.slot <= g.now and part.l.mode == 'enforce' and line_of(g, part.cell)
      if line and not line.keeper then
        local service = service_us(part.l, part.cost, line)
        if wait <= service and line.kept <= KEPT * (g.now - line.since) then
          line.keeper, line.from, line.to = pick.lane, g.now, g.now + math.ceil(2 * service)
          keep_line(g, part.cell, line)
          set_due(g, part.cell, line.to)
        end
      end
    end
  end

  -- Gives a lane a place in the line of a part's cell, unless it has one.
  local function take_place(g, pick, part, ticket)
    local cell, line = part.cell, line_of(g, part.cell)
    local place = ticket.places[cell]
    if not line then
      line, part.tag, part.is_new = { v = 0, t = 0, places = 0, standing = 0, since = g.now, kept = 0 }, 1, true
      line.shared, part.line = part.shared, line
    end
    local has_places = part.l.algorithm == 'concurrency'
    if has_places ~= (line.between ~= nil) then
      -- A new line, or its limit has changed from a rate to places, or back.
      line.between = has_places and 0 or nil
      keep_line(g, cell, line)
    end
    if not place then
      if part.is_new then line.t = math.max(line.t, part.tag) end
      line.places = line.places + 1
      keep_line(g, cell, line)
      place = { tag = part.tag, step = groups.step(part.cost, pick.weight or 1) }
      redis.call('ZADD', tags_key(g, cell), as_text.us(place.tag + place.step), pick.group)
      ticket.places[cell] = place
    end
    place.units, place.tier = part.cost, part.l.tier
  end

  -- The lane waits in the line of this part's cell from now on.
  local function stand(g, pick, waited, behind)
    local lane, cell, ticket = pick.lane, waited.cell, pick.ticket or { places = {} }
    if not g.lined then
      redis.call('HSET', g.base .. 'meta:lanes', 'lined', 1)
      g.lined = true
    end
    for _, part in ipairs(pick.parts) do
      -- Lanes that gave up their places may have been the last in a line.
      if part == waited or part.line and line_of(g, part.cell) then take_place(g, pick, part, ticket) end
    end
    for other in pairs(ticket.places) do
      if other ~= cell then step_out(g, lane, other, ticket.tried and other ~= ticket.cell) end
    end
    step_in(g, lane, cell, ticket.places[cell].tag)
    ticket.cell, ticket.rank, ticket.tried = cell, groups.lane_held(g, pick.group, lane), nil
    keep_ticket(g, lane, ticket)
    if not behind then keep_others(g, pick, waited) end
    local line = line_of(g, cell)
    -- The kept cell does not conform any more: the lane waits for it.
    local was_kept = line.keeper == lane
    if was_kept then
      end_keep(g, line)
      keep_line(g, cell, line)
    end
    -- With equal tags, a lane that is behind may stand first: then it is let go when this cell has room, whatever else
    -- it needs.
    if is_first(g, cell, line, lane) then set_due(g, cell, behind and line.keeper and line.to or waited.slot)
    elseif was_kept then set_due(g, cell, 0) end
  end

  -- Whether the job of a pick may go by `by` under the limits of its group and keys. If not, its lane waits in a line.
  function groups.may_pass(g, pick, by)
    if not g.lined and pick.slot <= by and not not_own_turn(g, pick) then return true end
    local part, behind = waits_for(g, pick, by)
    if not part then return true end
    stand(g, pick, part, behind)
    return false
  end

  -- The job of a pick has departed, and this cell is charged.
  local function cell_served(g, pick, part)
    local cell, line, ticket = part.cell, part.line, pick.ticket
    line.v = math.max(line.v, part.tag)
    if ticket and ticket.places[cell] then
      ticket.places[cell], line.places = nil, line.places - 1
      line.standing = line.standing - redis.call('ZREM', line_key(g, cell), pick.lane)
    else
      if part.is_new then line.t = math.max(line.t, part.tag) end
      redis.call('ZADD', tags_key(g, cell), as_text.us(part.tag + groups.step(part.cost, pick.weight or 1)), pick.group)
    end
    if line.keeper == pick.lane then end_keep(g, line) end
    if line.places > 0 then redis.call('ZREMRANGEBYSCORE', tags_key(g, cell), '-inf', as_text.us(line.v)) end
    if not lane_left(g, cell, line) then return end
    -- The cell is due when it has room for the first lane of the line, unless that is being tried.
    local first = ticket_of(g, (first_of(g, cell)))
    if first.tried then return end
    local place = first.places[cell]
    if place.tier ~= part.l.tier then return set_due(g, cell, g.now) end
    set_due(g, cell, g.now + math.ceil(part.l.verbs.earliest(part.s, part.l, place.units + part.l.kept)))
  end

  -- The same, of all its cells.
  function groups.cells_served(g, pick)
    local ticket, lane = pick.ticket, pick.lane
    if ticket then drop_ticket(g, lane) end
    for i = 1, #pick.parts do
      local part = pick.parts[i]
      if part.line and line_of(g, part.cell) then cell_served(g, pick, part) end
    end
    if not ticket then return end
    -- Places in lines of limits that do not count it any more.
    for cell, place in pairs(ticket.places) do
      step_out(g, lane, cell)
      give_place_back(g, pick.group, lane, cell, place)
    end
  end
end

return group_lines
