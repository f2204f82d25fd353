--- @include "limit-switch"

-- What the name of a limit stands for, for all who use it, in the limit's control hash.

-- Whether a definition (JSON, or false for none) is one of src/limits/spread-keys.ts. No name of a tier has quotes.
local function limit_is_spread(definition)
  return definition and string.find(definition, '"spread":"key"', 1, true) ~= nil
end

-- What a name stands for: its definition (JSON), false for none, and its version or ''; then, whether another definition of
-- that version (an integer or nil) takes its place. None that is spread takes that of one that is not, nor the other way
-- round: their states lie elsewhere, so that a key would have twice the limit while both are in use.
local function limit_defined(control, definition, version)
  local stored = redis.call('HMGET', control, 'definition', 'version')
  local current = tonumber(stored[2] or '')
  local alike = limit_is_spread(stored[1]) == limit_is_spread(definition)
  local outranks = not stored[1] or (alike and version and (not current or version > current))
  return stored[1], stored[2] or '', outranks
end

-- Stores a definition unless the name stands for another one; a higher version takes its place. Returns whether it is in
-- force, the definition that is, and its version or ''.
local function limit_define(control, definition, version, by)
  local stored, current, outranks = limit_defined(control, definition, version)
  if not outranks then return stored == definition, stored, current end
  -- Whoever uses an older one learns of it at his next decision. Written first: while the slot moves Redis may end the script
  -- here, and what is stored below is taken for known to all.
  limit_switch_write(control, { version = version or 0 })
  redis.call('HSET', control, 'definition', definition, 'version', version or '', 'by', by)
  return true, definition, version or ''
end
