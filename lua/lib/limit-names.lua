--- @include "limit-switch"

-- What the name of a limit stands for, for all who use it, in the limit's control hash.

-- Stores a definition (JSON) unless the name stands for another one; a higher version takes its place. version: an integer
-- or nil. Returns whether it is in force, the definition that is, and its version or ''.
local function limit_define(control, definition, version, by)
  local stored = redis.call('HMGET', control, 'definition', 'version')
  local current = tonumber(stored[2] or '')
  local outranks = version and (not current or version > current)
  if stored[1] and not outranks then return stored[1] == definition, stored[1], stored[2] or '' end
  redis.call('HSET', control, 'definition', definition, 'version', version or '', 'by', by)
  -- Whoever uses an older one learns of it at his next decision.
  limit_switch_write(control, { version = version or 0 })
  return true, definition, version or ''
end
