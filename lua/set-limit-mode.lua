--[[
  Sets the mode of a limit for everybody who uses it, at once.
  KEYS
    [1]  the control hash of the limit
  ARGV
    [1]  'enforce', 'shadow', 'off', or '' for what the code says
  Returns 1.
]]
if ARGV[1] == '' then
  redis.call('HDEL', KEYS[1], 'mode')
else
  redis.call('HSET', KEYS[1], 'mode', ARGV[1])
end
return 1
