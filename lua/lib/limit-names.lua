--- @include "limit-switch"

-- What the name of a limit stands for, for all who use it, in the limit's control hash.

-- What a name stands for: its definition (JSON), false for none, and its version or ''; then, whether a definition of
-- that version (an integer or nil) takes its place.
local function limit_defined(control, version)
  local stored = redis.call('HMGET', control, 'definition', 'version')
  local current = tonumber(stored[2] or '')
  local outranks = not stored[1] or (version and (not current or version > current))
  return stored[1], stored[2] or '', outranks
end

-- Stores a definition unless the name stands for another one; a higher version takes its place. Returns whether it is in
-- force, the definition that is, and its version or ''.
local function limit_define(control, definition, version, by)
  local stored, current, outranks = limit_defined(control, version)
  if not outranks then return stored == definition, stored, current end
  redis.call('HSET', control, 'definition', definition, 'version', version or '', 'by', by)
  -- Whoever uses an older one learns of it at his next decision.
  limit_switch_write(control, { version = version or 0 })
  return true, definition, version or ''
end
