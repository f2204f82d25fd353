local limit_switch = use 'limits/switch'

-- The definition of a limit's name, for all its users, in the limit's control hash.

local limit_names = {}

-- Whether a definition (JSON, or false for none) is one of src/limits/spread-keys.ts. Names of tiers contain no quotes.
function limit_names.is_spread(definition)
  return definition and string.find(definition, '"spread":"key"', 1, true) ~= nil
end

-- The definition of a name (JSON), false for none, and its version or ''; third, whether another definition of that
-- version (an integer or nil) replaces it. A spread one never replaces one that is not, nor vice versa: their states
-- are stored in different places, so that a key would have twice the limit while both are in use.
function limit_names.defined(control, definition, version)
  local stored = redis.call('HMGET', control, 'definition', 'version')
  local current = tonumber(stored[2] or '')
  local alike = limit_names.is_spread(stored[1]) == limit_names.is_spread(definition)
  local outranks = not stored[1] or (alike and version and (not current or version > current))
  return stored[1], stored[2] or '', outranks
end

-- Stores a definition unless the name has another one; a higher version replaces it. Returns whether it is in force,
-- the definition in force, and its version or ''.
function limit_names.define(control, definition, version, by)
  local stored, current, outranks = limit_names.defined(control, definition, version)
  if not outranks then return stored == definition, stored, current end
  -- Users of an older definition learn of this at their next decision. Written first: while the hash slot moves Redis
  -- may abort the script here, and a stored definition is assumed to be known to all users.
  limit_switch.write(control, { version = version or 0 })
  redis.call('HSET', control, 'definition', definition, 'version', version or '', 'by', by)
  return true, definition, version or ''
end

return limit_names
