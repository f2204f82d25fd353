--[[
  Stores what a limit's name stands for, unless it stands for something else already. A higher version takes its place.
  KEYS
    [1]  the control hash of the limit
  ARGV
    [1]  the definition, JSON
    [2]  its version, an integer, or '' for none
    [3]  who declares: host, process id and program
  Returns {1 where it is in force, 0 where another one is, the definition in force, its version or ''}.
]]
local stored = redis.call('HMGET', KEYS[1], 'definition', 'version')
local version, current = tonumber(ARGV[2]), tonumber(stored[2] or '')
local outranks = version and (not current or version > current)
if not stored[1] or (outranks and (stored[1] ~= ARGV[1] or version ~= current)) then
  redis.call('HSET', KEYS[1], 'definition', ARGV[1], 'version', ARGV[2], 'by', ARGV[3])
  return { 1, ARGV[1], ARGV[2] }
end
return { stored[1] == ARGV[1] and 1 or 0, stored[1], stored[2] or '' }
