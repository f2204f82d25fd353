/**
 * Real time runs differently from a held clock. So a key whose script asks for an expiry gets one in the year 2127, and lasts
 * until the held clock is there: what of its state is still needed then is missed, as it would be in use.
 */
export const FAR_MS = 100 * 365.25 * 86_400_000
/** So long no state matters: a script that asks for more has taken one unit for another. */
const MOST_MS = 10 * 365.25 * 86_400_000

/**
 * Lua: what takes the place of `redis`, and a function to be called when the clock has moved. BullMQ's scripts and ours set
 * expiries by these commands only.
 * @param nowUs an expression: the held clock. `real` is the real `redis`
 * @param index an expression: the key that knows which keys expire
 * @param locksExpire whether the locks of jobs, and their places, expire too: where no worker renews them, they last
 */
export function heldExpiries({ nowUs, index, locksExpire = false }: HeldExpiries): string {
  return `(function(real)
  local function now_ms() return (${nowUs}) / 1000 end
  local function text(number) return string.format('%.0f', number) end
  local function lasts(key)
    return ${!locksExpire} and (string.find(key, ':lock$') or string.find(key, ':limit:[^:]*:n:'))
  end
  local function keep(key, at_ms, ...)
    if not (at_ms - now_ms() < ${MOST_MS}) then error(key .. ' is kept for too long: ' .. (at_ms - now_ms()) .. ' ms') end
    local kept = real.call('PEXPIREAT', key, text(at_ms + ${FAR_MS}), ...)
    if kept == 1 and not lasts(key) then real.call('ZADD', ${index}, text(at_ms), key) end
    return kept
  end
  -- Nil if the key does not expire by this clock.
  local function end_of(key)
    local at = real.call('PEXPIRETIME', key)
    return at >= ${FAR_MS} and at - ${FAR_MS} or nil
  end
  local function expire()
    for _, key in ipairs(real.call('ZRANGEBYSCORE', ${index}, '-inf', text(math.floor(now_ms())))) do
      local at = end_of(key)
      if at and at > now_ms() then real.call('ZADD', ${index}, text(at), key)
      else
        if at then real.call('DEL', key) end
        real.call('ZREM', ${index}, key)
      end
    end
  end
  local function set(key, value, ...)
    local options, ms = { ... }, nil
    for i = #options, 2, -1 do
      if options[i - 1] == 'PX' then
        ms = tonumber(options[i])
        table.remove(options, i)
        table.remove(options, i - 1)
      end
    end
    local reply = real.call('SET', key, value, unpack(options))
    if ms and reply then keep(key, now_ms() + ms) end
    return reply
  end
  local handlers = {
    SET = set,
    PSETEX = function(key, ms, value) return set(key, value, 'PX', ms) end,
    PEXPIRE = function(key, ms, ...) return keep(key, now_ms() + ms, ...) end,
    PEXPIREAT = function(key, at_ms, ...) return keep(key, at_ms, ...) end,
    PTTL = function(key)
      local at = end_of(key)
      return at and math.max(0, math.ceil(at - now_ms())) or real.call('PTTL', key)
    end,
  }
  local function call(command, ...)
    local handler = handlers[command]
    if handler then return handler(...) end
    return real.call(command, ...)
  end
  return setmetatable({ call = call }, { __index = real }), expire
end)(redis)`
}

interface HeldExpiries {
  readonly nowUs: string
  readonly index: string
  readonly locksExpire?: boolean
}
