local wake = use 'gate/wake'
local limit_control = use 'limits/control'
local as_text = use 'redis/as-text'

-- The turns of queues at a cell that they share (a limit with `by` and `shared`, groups/limits-of). Each line belongs
-- to one queue (groups/lines). A queue whose lanes stand in the line of such a cell waits for it here, since its first
-- one does. The queue that waits longest is next: whoever frees units calls one of its workers, and gives it the cell
-- for a while. Meanwhile other queues wait; limiters do not, and take free units. Then it is the last. A queue that is
-- paused, or has no sleeping worker, is skipped.
--   <control>:queues:<value>   sorted set, key prefix of a waiting queue -> since when, or since its last turn, µs
--   <control>:turn:<value>     the queue whose turn it is
--   <control>:lanes            the queues that may wait for any value
-- A cell is {control, value}: of a limit, and the end of the key of its state.
local turns = {
  -- How long a turn lasts, ms: under a rate, a queue takes as much as it can meanwhile.
  TURN_MS = 250,
  -- At most this many queues are checked for the next turn.
  MOST = 16,
}
-- Lifetime after the last queue came, ms: a queue that waits for longer finds out by itself.
local KEPT_MS = 3600000

local function queues_key(cell)
  return cell.control .. ':queues:' .. cell.value
end

local function turn_key(cell)
  return cell.control .. ':turn:' .. cell.value
end

-- The name of the cell in lines.
local function name_of(cell)
  local name = string.match(cell.control, ':limit:{?([^{}]*)}?$')
  return name .. ':' .. cell.value
end

local function give_turn(cell, base, now)
  redis.call('SET', turn_key(cell), base, 'PX', turns.TURN_MS)
  redis.call('ZADD', queues_key(cell), 'XX', as_text.us(now), base)
end

-- Calls a queue to the cell. Returns whether it can come.
local function invite(cell, base)
  local due = base .. 'meta:lines:due'
  if not redis.call('ZSCORE', due, name_of(cell)) then
    redis.call('ZREM', queues_key(cell), base)
    return false
  end
  redis.call('ZADD', due, 0, name_of(cell))
  return redis.call('HEXISTS', base .. 'meta', 'paused') == 0 and wake.sleeper(base)
end

-- Gives the turn to the queue that waits longest and can come. Returns whether that is this one (base), or none is.
local function pass_on(cell, base, now)
  for _, queue in ipairs(redis.call('ZRANGE', queues_key(cell), 0, turns.MOST - 1)) do
    if queue == base then return true end
    if invite(cell, queue) then
      give_turn(cell, queue, now)
      return false
    end
  end
  return true
end

-- Lanes of a queue stand in the line of the cell from now on.
function turns.enter(cell, base, now)
  redis.call('ZADD', queues_key(cell), 'NX', as_text.us(now), base)
  redis.call('PEXPIRE', queues_key(cell), KEPT_MS)
  redis.call('SADD', cell.control .. ':lanes', base)
end

-- None does any more: the rest of its turn is for the next one.
function turns.leave(cell, base, now)
  redis.call('ZREM', queues_key(cell), base)
  if redis.call('GET', turn_key(cell)) ~= base then return end
  redis.call('DEL', turn_key(cell))
  pass_on(cell, base, now)
end

-- Units of the cell are free again, by a queue or, with '', by a limiter. Returns whether that queue may take them.
function turns.freed(cell, base, now)
  limit_control.call_others(cell.control, base)
  local holder = redis.call('GET', turn_key(cell))
  if not holder then return pass_on(cell, base, now) end
  if holder ~= base then invite(cell, holder) end
  return holder == base
end

-- The same, for a key of a limiter. state: the Redis key of its state
function turns.key_freed(control, state, now)
  local value = string.match(string.sub(state, #control + 1), '^:[^:]*:(.*)$')
  -- The state of a spread limit, which no queue has, has another name.
  if not value then return limit_control.call_others(control, '') end
  turns.freed({ control = control, value = value }, '', now)
end

-- Until when a job of this queue has to wait for others, µs, although the cell has room for it; nil if it may go.
-- keeps: whether the queue may take more during its turn, as under a rate
function turns.until_own(cell, base, now, keeps)
  local first = redis.call('ZRANGE', queues_key(cell), 0, 0)[1]
  if not first then return nil end
  local holder = redis.call('GET', turn_key(cell))
  if holder and holder ~= base then return now + math.max(1, redis.call('PTTL', turn_key(cell))) * 1000 end
  if not holder and not pass_on(cell, base, now) then return now + turns.TURN_MS * 1000 end
  if keeps then
    if not holder then give_turn(cell, base, now) end
    return nil
  end
  redis.call('DEL', turn_key(cell))
  redis.call('ZADD', queues_key(cell), 'XX', as_text.us(now), base)
end

-- The limit changed for all values: all lanes that wait for it are checked again.
function turns.changed(control)
  for _, base in ipairs(redis.call('SMEMBERS', control .. ':lanes')) do
    local due = base .. 'meta:lines:due'
    if redis.call('ZUNIONSTORE', due, 1, due, 'WEIGHTS', 0) == 0 then redis.call('SREM', control .. ':lanes', base)
    else wake.sleeper(base) end
  end
  limit_control.call_others(control, '')
end

return turns
