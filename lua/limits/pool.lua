local own_values = use 'limits/own-values'
local scheduled_bucket = use 'limits/scheduled-bucket'
local shapes = use 'shape/shapes'

-- A limit of a queue with `pool`: each member has a state like one value of a limit with `by` (limits/own-values,
-- groups/limits-of), and a job is charged in the state of the member with which it departs. It replaces an algorithm
-- (limits/checks) for waits and departures; charges are settled and refunded under their member (pool.part_of).
--   l.member     the limit as that of one member; l.own: whether members have settings; l.base: of the queue;
--                l.ends: own_limits of the shape, if no groups end settings (groups/queue-groups)
--   s.members    in the order of their turns: name, l, s, held (µs from now), and at: when they conform to the last
--                cost
--   s.member     the one of the last charge
--   s.group      of the departing job, if groups keep their members
--   s.ahead      how far ahead of now the last slot lies, µs
--   s.ends       when the first of the members' settings ends, µs
--   <control>:turns   names of members, the one that departed last at the end; s.ahead, and when
local pool = {
  -- After this time all members have rested equally.
  TURNS_MS = 86400000,
  -- A member that is held without end is held until then, µs.
  FOREVER_US = 9e15,
}

-- key: the common beginning of the keys of the members' states
function pool.open(key, l, now)
  local s = { now = now, members = {}, turns = l.control .. ':turns', held = math.huge, ends = math.huge }
  local rank = {}
  local turns = redis.call('GET', s.turns)
  local names, ahead, seen = {}, 0, now
  if turns then names, ahead, seen = cmsgpack.unpack(turns) end
  for i, name in ipairs(names) do rank[name] = i end
  -- If the clock went back, distances in time are kept.
  s.ahead = math.max(0, ahead - math.max(0, now - seen))
  for i, name in ipairs(l.pool) do
    local own = l.own and own_values.in_force(l.base, l.member, name, nil, now) or l.member
    local held = math.max(0, math.min(own.held_until or 0, pool.FOREVER_US) - now)
    s.members[i] = {
      name = name, l = own, s = own.verbs.open(key .. name, own, now), held = held, rank = rank[name] or i - #l.pool,
    }
    s.held, s.ends = math.min(s.held, held), math.min(s.ends, own.next_end or math.huge)
  end
  table.sort(s.members, function(one, other) return one.rank < other.rank end)
  return s
end

function pool.earliest(s, l, cost)
  local first = math.huge
  for _, m in ipairs(s.members) do
    m.at = m.l.mode == 'off' and m.held or math.max(m.held, m.l.verbs.earliest(m.s, m.l, cost))
    first = math.min(first, m.at)
  end
  -- A cheap job does not go before one that waits for its member. Places are taken at once, wherever the slot lies.
  return l.algorithm == 'concurrency' and first or math.max(first, s.ahead)
end

-- The first time from `at` on, µs, when a member that conforms by then is open by its schedule.
function pool.opens(s, at)
  local first = math.huge
  for _, m in ipairs(s.members) do
    local from = math.max(at, s.now + math.ceil(m.at or m.held))
    local opens = m.l.mode ~= 'off' and from < pool.FOREVER_US and scheduled_bucket.opens(m.l, from) or from
    first = math.min(first, opens)
  end
  return first
end

-- While no member may pass anything, as scheduled_bucket.closed has it, the one that opens first; else nil.
function pool.closed(s)
  local first
  for _, m in ipairs(s.members) do
    local closed = m.l.mode ~= 'off' and scheduled_bucket.closed(m.l, s.now)
    if not closed then return nil end
    if not first or tonumber(closed.ends) < tonumber(first.ends) then first = closed end
  end
  return first
end

-- The member of a group: while members come and go, most groups keep theirs (rendezvous hashing).
local function home_of(s)
  local home, most
  for _, m in ipairs(s.members) do
    local weight = redis.sha1hex(s.group .. '\0' .. m.name)
    if not most or weight > most then home, most = m, weight end
  end
  return home
end

-- Whether a member conforms, and is open, at that time, µs from now.
local function may_go(s, m, offset)
  if m.at > offset then return false end
  local at = s.now + math.ceil(offset)
  return m.l.mode == 'off' or scheduled_bucket.opens(m.l, at) == at
end

-- The member with which the last requested job departs at that time, µs from now: the one of its group, or the one that
-- has rested longest; if none may go by then, as in shadow mode, the first that conforms.
function pool.choose(s, offset)
  local chosen, place = s.group and home_of(s), nil
  if chosen and not may_go(s, chosen, offset) then chosen = nil end
  for i, m in ipairs(s.members) do
    if not chosen and may_go(s, m, offset) then chosen = m end
    if chosen == m then place = i end
  end
  for i, m in ipairs(not chosen and s.members or {}) do
    if not place or m.at < s.members[place].at then place = i end
  end
  s.member = table.remove(s.members, place)
  table.insert(s.members, s.member)
  return s.member
end

-- Places belong to the lease of the pool: s.lease, s.lock_ms.
function pool.charge(s, _, cost, offset)
  local m = pool.choose(s, offset)
  s.ahead = offset
  if m.l.mode == 'off' then return end
  -- One member may have fewer places than the others.
  if m.l.algorithm == 'concurrency' then cost = math.min(cost, m.l.limit) end
  m.s.lease, m.s.lock_ms = s.lease, s.lock_ms
  m.l.verbs.charge(m.s, m.l, cost, offset)
  m.charged = true
end

function pool.save(s, l)
  local names = {}
  for i, m in ipairs(s.members) do
    names[i] = m.name
    if m.charged then m.l.verbs.save(m.s, m.l) end
  end
  redis.call('PSETEX', s.turns, pool.TURNS_MS, cmsgpack.pack(names, s.ahead, s.now))
  if l.ends then shapes.end_own_values(l.base, l.ends, s.now) end
end

-- A copy of a state, for queue_limits.planned. copy: of one member
function pool.copy(s, copy)
  local planned = { now = s.now, members = {}, held = s.held, ends = s.ends, ahead = s.ahead }
  for i, m in ipairs(s.members) do
    planned.members[i] = { name = m.name, l = m.l, s = copy(m.l, m.s), held = m.held, at = m.at }
  end
  return planned
end

-- The parts of its members, as in limits/queue-limits; part.member: its name, part.state: the name of its state.
function pool.parts(part)
  local parts = {}
  for i, m in ipairs(part.s.members) do
    parts[i] = {
      l = m.l, s = m.s, offset = 0, blocked = m.held, member = m.name, value = m.name, state = m.l.name .. ':' .. m.name,
      ahead = part.s.ahead,
    }
  end
  return parts
end

return pool
