--[[
  The secret with which a gateway binds job ids to callers: all its processes use the first one that was proposed.
  ARGV
    [1]  a secret to use if there is none
  Returns the secret.
]]
local key = string.sub(KEYS[1], 1, -11) .. 'meta:callers'
local known = redis.call('GET', key)
-- A stored secret can be read even if Redis is full.
if not known then redis.call('SET', key, ARGV[1]) end
return known or ARGV[1]
