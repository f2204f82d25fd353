/** How much longer than asked for keys last in scripts with a held clock, ms. */
export const KEPT_LONGER_MS = 3_600_000

/**
 * Replaces `redis`, for all modules, in scripts whose clock is held: real time runs differently between two calls, so no key expires by it
 * during a test. BullMQ's scripts and ours set expiries by these commands only.
 */
export const LASTING_KEYS = `
redis = (function(real)
  local function longer(ms) return string.format('%.0f', ms + ${KEPT_LONGER_MS}) end
  local handlers = {
    PEXPIRE = function(key, ms, ...) return real.call('PEXPIRE', key, longer(ms), ...) end,
    PEXPIREAT = function(key) return real.call('PEXPIRE', key, longer(0)) end,
    PSETEX = function(key, ms, value) return real.call('PSETEX', key, longer(ms), value) end,
    SET = function(key, value, ...)
      local options = { ... }
      for i = 2, #options do
        if options[i - 1] == 'PX' then options[i] = longer(options[i]) end
      end
      return real.call('SET', key, value, unpack(options))
    end,
  }
  local function call(command, ...)
    local handler = handlers[command]
    if handler then return handler(...) end
    return real.call(command, ...)
  end
  return setmetatable({ call = call }, { __index = real })
end)(redis)
`
