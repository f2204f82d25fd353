local concurrency = use 'limits/concurrency'
local limit_control = use 'limits/control'
local even_window = use 'limits/even-window'
local fixed_window = use 'limits/fixed-window'
local gcra = use 'limits/gcra'
local leaky_bucket = use 'limits/leaky-bucket'
local scheduled_bucket = use 'limits/scheduled-bucket'
local sliding_window_counter = use 'limits/sliding-window-counter'
local sliding_window_log = use 'limits/sliding-window-log'
local limit_state = use 'limits/state'
local token_bucket = use 'limits/token-bucket'
local as_text = use 'redis/as-text'

-- Shared by the scripts of sluice/limits. docs/redis-keys.md has the keys of a limit; `control` is the name of its hash.

local limit_checks = {}

-- The algorithms by name. Each is a table of functions over a limit l, as src/limits/definition.ts writes it:
--   open(key, l, now, packed)    the state s of a key; s.now is the time (µs); packed as in limit_state.load
--   earliest(s, l, cost)         when that cost conforms: µs after s.now, not before it
--   charge(s, l, cost, offset)   charges it for that time, µs after s.now; only in memory if s.planned is set, a table
--                                for the algorithm's own use
--   adjust(s, l, cost)           charges it now unconditionally, or refunds it (cost < 0)
--   remove(s, l, cost)           undoes the last charge, if that differs from a refund
--   charged_until(s, since)      the sum of all charges up to a time; without it, s.start is the start of the window
--   take_back(s, l, cost, slot, budget)  undoes a charge for that time (µs) of a job that never started, the latest
--                                        first; false if that would let more pass than allowed, or exceed the budget of
--                                        the call: budget.entries of logs may still be read. Not for places: they
--                                        follow their holders
--   begin(s, l, start, used, opening)  for a window: sets its start, its charges, and the part of these for its start
--   verify(s, l, most), give_back(key, lease, cost)  of places alone: limits/concurrency
--   save(s, l)                   stores the charges
--   view(s, l)                   units left now, and when all are available again (µs since 1970)
-- A cost that conforms once also conforms later, if nothing else is charged. So several limits are met together at the
-- latest of their earliest times.
local function algorithm_named(name)
  if name == 'concurrency' then return concurrency end
  if name == 'fixed-window' then return fixed_window end
  if name == 'gcra' then return gcra end
  if name == 'leaky-bucket' then return leaky_bucket end
  if name == 'sliding-window-counter' then return sliding_window_counter end
  if name == 'sliding-window-log' then return sliding_window_log end
  if name == 'token-bucket' then return token_bucket end
end

local scheduled = {
  ['fixed-window'] = even_window,
  gcra = scheduled_bucket.of(gcra), ['leaky-bucket'] = scheduled_bucket.of(leaky_bucket),
  ['token-bucket'] = scheduled_bucket.of(token_bucket),
}

-- Gives a limit its functions.
function limit_checks.use_verbs(l)
  limit_state.follow_clock(l)
  l.verbs = l.service and scheduled[l.algorithm] or algorithm_named(l.algorithm)
end

-- waits: for a caller that waits for its turn, and leaves the reserved share to callers that do not, unless it is idle.
-- switch: its string, false if there is none, nil if it must be read
function limit_checks.prepare(l, control, now, waits, switch)
  if switch == nil then switch = redis.call('GET', limit_control.key(control)) end
  local mode, blocked_until, taken_at, version, horizon, horizon_at = limit_control.read(switch)
  if mode ~= '-' then l.mode = mode end
  l.control, l.blocked_until = control, blocked_until
  limit_checks.use_verbs(l)
  l.outdated = version > (l.version or 0)
  l.horizon, l.horizon_at = horizon, horizon_at
  l.plain = l.mode == 'enforce' and blocked_until <= now
  -- The share reserved for others must conform as well; it is not charged.
  l.kept = 0
  if l.reserve and waits and now - taken_at < l.lend then
    l.kept = (l.burst or l.limit) * l.reserve
    if l.algorithm == 'concurrency' then l.kept = math.ceil(l.kept) end
  end
  return l
end

function limit_checks.read(control, definition, now)
  return limit_checks.prepare(cjson.decode(definition), control, now)
end

-- The key of a key's state: once a limit has its maximum number of keys, all further ones share one state.
function limit_checks.place(l, key, now)
  if not l.maxKeys then return key, false end
  local keys = l.control .. ':keys'
  if redis.call('ZSCORE', keys, key) then return key, false end
  redis.call('ZREMRANGEBYSCORE', keys, '-inf', as_text.us(now))
  if redis.call('ZCARD', keys) >= l.maxKeys then return l.control .. ':others:' .. l.algorithm, true end
  return key, false
end

-- Records that a key is in use until `reset` (µs).
function limit_checks.keep_place(l, key, reset)
  if not l.maxKeys then return end
  local keys = l.control .. ':keys'
  redis.call('ZADD', keys, as_text.us(reset), key)
  redis.call('PEXPIREAT', keys, math.ceil(redis.call('ZRANGE', keys, -1, -1, 'WITHSCORES')[2] / 1000) + limit_state.SLACK_MS)
end

-- µs for which a key is blocked.
function limit_checks.blocked(l, key, now)
  if l.blocked_until <= now then return 0 end
  return math.max(0, (tonumber(redis.call('ZSCORE', l.control .. ':blocks', key)) or 0) - now)
end

-- How long a cost must wait for a limit, given the state s of its key, in whole µs. In shadow mode the wait that would
-- apply is returned as a negative number: the limit holds nothing, but a block of the key is an explicit command.
function limit_checks.wait_of(l, s, key, cost, now)
  if l.mode == 'off' then return 0 end
  local wait = math.ceil(l.verbs.earliest(s, l, cost))
  if l.plain then return wait end
  local blocked = limit_checks.blocked(l, key, now)
  if l.mode == 'enforce' then return math.max(wait, blocked) end
  return blocked > 0 and blocked or -wait
end

-- How long a part (limits/queue-limits) waits whose cost conforms after part.offset, µs, not rounded.
function limit_checks.wait(part)
  if part.l.mode ~= 'enforce' then return part.blocked end
  return math.max(part.offset, part.blocked)
end

-- Appends the result to a reply, after its first `size` entries: the wait, units left, µs from now until all are
-- available again. Returns the new size.
function limit_checks.tell(l, s, wait, reply, size)
  local left, reset = l.verbs.view(s, l)
  reply[size + 1], reply[size + 2], reply[size + 3] = wait, math.max(0, math.floor(left)), math.ceil(reset - s.now)
  return size + 3
end

return limit_checks
